#include "process/symbols/stack_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

namespace retinue {
namespace {

constexpr std::size_t kMaxFunctionChars = 240;
constexpr std::size_t kMinRepeats = 3;

// Between the user's function and the exception or the signal.
constexpr std::array<std::string_view, 20> kRaising = {"__cxa_throw",
                                                       "__cxa_rethrow",
                                                       "std::__throw_",
                                                       "std::rethrow_exception",
                                                       "__interceptor_",
                                                       "std::terminate",
                                                       "__cxxabiv1::__terminate",
                                                       "__cxa_call_terminate",
                                                       "__gxx_personality_v0",
                                                       "__cxa_pure_virtual",
                                                       "__gnu_cxx::__verbose_terminate_handler",
                                                       "retinue::(anonymous namespace)::on_terminate",
                                                       "_Unwind_",
                                                       "abort",
                                                       "raise",
                                                       "gsignal",
                                                       "__pthread_kill",
                                                       "pthread_kill",
                                                       "__assert_fail",
                                                       "__restore_rt"};

// From here outwards nothing is the user's. Without its namespace: what -g1 keeps of a local instantiation.
constexpr std::array<std::string_view, 19> kPlumbing = {"retinue::detail::entry_thunk",
                                                        "entry_thunk",
                                                        "retinue::detail::call_entry",
                                                        "call_entry",
                                                        "retinue::detail::invoke_entry",
                                                        "invoke_entry",
                                                        "retinue::detail::invoke_closure",
                                                        "invoke_closure",
                                                        "retinue::run_rank_body",
                                                        "retinue::run_function_rank",
                                                        "retinue::run_child",
                                                        "__libc_start",
                                                        "_start",
                                                        "retinue::run_guarded_thread",
                                                        "start_thread",
                                                        "clone",
                                                        "clone3",
                                                        "__clone",
                                                        "execute_native_thread_routine"};

// How the plumbing calls the entry.
constexpr std::array<std::string_view, 6> kGlue = {"std::apply",    "std::__apply",  "std::invoke",
                                                   "std::__invoke", "std::function", "std::_Function_handler"};

/// The qualified name alone: no return type (templates have one), no template arguments, no parameters.
std::string_view qualified_name(std::string_view function) {
  // glibc's own names of what it calls itself.
  constexpr std::string_view kInternal = "__GI_";
  if (function.starts_with(kInternal)) function.remove_prefix(kInternal.size());
  constexpr std::array<std::string_view, 2> kParenthesised = {"(anonymous namespace)", "decltype(auto)"};
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < function.size(); ++i) {
    const auto whole = std::find_if(kParenthesised.begin(), kParenthesised.end(),
                                    [&](std::string_view text) { return function.substr(i).starts_with(text); });
    if (whole != kParenthesised.end()) {
      i += whole->size() - 1;
      continue;
    }
    const char c = function[i];
    if (c == '<') ++depth;
    if (c == '>') --depth;
    if (depth > 0) continue;
    if (c == ' ') begin = i + 1;
    if (c == '(') return function.substr(begin, i - begin);
  }
  return function.substr(begin);
}

template <std::size_t kCount>
bool is_among(const StackLine& line, const std::array<std::string_view, kCount>& prefixes) {
  const std::string_view name = qualified_name(line.function);
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    if (!name.starts_with(prefix)) return false;
    // A C function is meant as a whole: `abort` is not `aborted_by_user`.
    const bool is_open = prefix.ends_with("::") || prefix.ends_with('_') || prefix.starts_with('_') ||
                         prefix.find("::__") != std::string_view::npos;
    return is_open || name.size() == prefix.size() || name[prefix.size()] == '<' || name[prefix.size()] == '@';
  });
}

/// A local function of the C or C++ runtime, which are installed without their full symbol tables.
bool is_unnamed_runtime(const StackLine& line) {
  const bool is_runtime = line.object.starts_with("libc.so.") || line.object.starts_with("libstdc++.so.");
  return is_runtime && line.function.empty();
}

std::string short_name(const std::string& function) {
  if (function.size() <= kMaxFunctionChars) return function;
  const std::size_t half = kMaxFunctionChars / 2;
  return function.substr(0, half) + " ... " + function.substr(function.size() - half);
}

std::string_view file_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

std::string line_text(const StackLine& line) {
  std::string place =
      line.object.empty() ? fmt::format("{:#x}", line.offset) : fmt::format("{}+{:#x}", line.object, line.offset);
  if (line.function.empty()) return place;
  if (line.file.empty()) return fmt::format("{} ({})", short_name(line.function), place);
  return fmt::format("{} at {}:{} ({})", short_name(line.function), file_name(line.file), line.line, place);
}

std::size_t count_repeats(const std::vector<StackLine>& lines, std::size_t first) {
  const StackLine& model = lines[first];
  if (model.function.empty()) return 1;
  const auto differs = [&](const StackLine& line) {
    return line.function != model.function || line.line != model.line;
  };
  const auto end = std::find_if(lines.begin() + static_cast<std::ptrdiff_t>(first), lines.end(), differs);
  return static_cast<std::size_t>(end - lines.begin()) - first;
}

}  // namespace

namespace {

using Lines = std::vector<StackLine>;

bool is_plumbing(const StackLine& line) {
  return is_among(line, kPlumbing);
}

bool is_raising(const StackLine& line) {
  return is_unnamed_runtime(line) || is_among(line, kRaising);
}

/// Retinue's own; its tests and benchmarks are programs. What -g1 of clang keeps of an inlined function is its name
/// alone.
bool is_of_library(const StackLine& line) {
  const std::string_view name = qualified_name(line.function);
  const bool is_qualified = name.substr(0, name.find('<')).find("::") != std::string_view::npos;
  if (!is_qualified && line.file.find("include/retinue/") != std::string::npos) return true;
  constexpr std::array<std::string_view, 2> kTests = {"retinue::test::", "retinue::bench::"};
  return name.starts_with("retinue::") &&
         std::ranges::none_of(kTests, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// What lies between two calls of Retinue's, as between an operation on tensors and its backend.
bool is_bridge(const StackLine& line) {
  constexpr std::array<std::string_view, 6> kBridges = {"std::", "__gnu_cxx::", "c10::", "c10d::", "at::", "torch::"};
  const std::string_view name = qualified_name(line.function);
  const bool is_torch = line.object.starts_with("libtorch") || line.object.starts_with("libc10");
  return is_torch || std::ranges::any_of(kBridges, [&](std::string_view prefix) { return name.starts_with(prefix); });
}

/// From the innermost frame outwards: the outermost line of the library before the first that is the user's, or `first`
/// where that is no line of the library.
template <class Iterator>
Iterator users_call(Iterator first, Iterator last) {
  Iterator call = first;
  for (Iterator line = first; line != last;) {
    // Lines of one frame are inlined into its outermost one, and local functions' names lack their namespace.
    const auto is_elsewhere = [&](const StackLine& other) {
      return other.offset != line->offset || other.object != line->object;
    };
    const Iterator end = std::find_if(line, last, is_elsewhere);
    Iterator own_end = line;
    for (Iterator at = line; at != end; ++at)
      if (is_of_library(*at)) own_end = std::next(at);
    if (own_end != line) call = std::prev(own_end);
    if (own_end != end && !std::all_of(own_end, end, is_bridge)) break;
    line = end;
  }
  return call;
}

/// Where what is not the user's begins, from `first` outwards.
Lines::iterator end_of_users(Lines& lines, Lines::iterator first) {
  const auto is_glue = [](const StackLine& line) {
    return is_unnamed_runtime(line) || is_among(line, kGlue) || line.file.find("/include/c++/") != std::string::npos;
  };
  auto last = std::find_if(first, lines.end(), is_plumbing);
  const bool has_end = last != lines.end() || (first != last && is_unnamed_runtime(lines.back()));
  while (has_end && last != first && is_glue(*std::prev(last))) --last;
  return last;
}

}  // namespace

Innermost innermost_of(std::string_view exception_type) {
  constexpr std::string_view kNamespace = "retinue::";
  const bool is_own =
      exception_type.starts_with(kNamespace) && exception_type.find("::", kNamespace.size()) == std::string_view::npos;
  return is_own ? Innermost::kLibrary : Innermost::kNews;
}

LineRange users_range(const std::vector<StackLine>& lines, Innermost innermost) {
  auto first = std::ranges::find_if_not(lines, is_raising);
  const auto last = std::find_if(first, lines.end(), is_plumbing);
  // Where the user's functions are inlined into the entry, no frame of theirs ends the library's before it.
  if (innermost == Innermost::kLibrary) first = users_call(first, last);
  const auto index = [&](auto at) { return static_cast<std::size_t>(at - lines.begin()); };
  return {index(first), std::min(index(last) + 1, lines.size())};
}

std::vector<StackLine> trim_stack(std::vector<StackLine> lines, Innermost innermost) {
  auto first = std::find_if_not(lines.begin(), lines.end(), is_raising);
  const auto last = end_of_users(lines, first);
  if (innermost == Innermost::kLibrary) first = users_call(first, last);
  // A stack of nothing but plumbing is Retinue's own failure: then all of it is news.
  if (last == first) return lines;
  return {std::make_move_iterator(first), std::make_move_iterator(last)};
}

std::vector<StackLine> trim_outside(std::vector<StackLine> lines) {
  if (const auto last = end_of_users(lines, lines.begin()); last != lines.begin()) lines.erase(last, lines.end());
  return lines;
}

std::string stack_text(const std::vector<StackLine>& lines) {
  std::string text;
  std::size_t number = 0;
  for (std::size_t i = 0; i < lines.size();) {
    if (lines[i].skipped != 0) {
      text += fmt::format("   ... {} more frames\n", lines[i].skipped);
      number += lines[i++].skipped;
      continue;
    }
    const std::size_t repeats = count_repeats(lines, i);
    text += fmt::format("#{} {}\n", number, line_text(lines[i]));
    if (repeats < kMinRepeats) {
      ++i;
      ++number;
      continue;
    }
    text += fmt::format("   ... {} more of the same\n", repeats - 1);
    i += repeats;
    number += repeats;
  }
  return text;
}

}  // namespace retinue
