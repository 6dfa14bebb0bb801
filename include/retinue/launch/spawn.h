#pragma once

#include <concepts>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/base/detail/never.h"
#include "retinue/launch/arguments.h"
#include "retinue/launch/detail/entry.h"
#include "retinue/launch/options.h"
#include "retinue/launch/process_context.h"
#include "retinue/launch/runtime.h"

namespace retinue {

namespace detail {

/// The arguments as one archive for all ranks, or one for each.
struct EncodedArguments {
  int nprocs;
  std::vector<Encoded> archives;

  const Encoded& of(int rank) const;
  /// Undoes the encoding of arguments that couldn't be sent.
  void take_back() noexcept;
};

/// Errors: as spawn.
ProcessContext start_function(const StartOptions& options, const EntryKey& entry, EncodedArguments arguments);
ProcessContext start_closure(const StartOptions& options, int nprocs, const RankBody& body);
StartOptions start_options_of(const SpawnOptions& options);

/// Errors: UsageError if `keys`, the keys of `what`, aren't exactly 0..nprocs-1, or if there are none.
void check_local_ranks(const char* what, const std::set<int>& keys, std::size_t nprocs);
/// Errors: UsageError as above.
StartOptions with_environments(StartOptions options, const EnvironmentByRank& envs, std::size_t nprocs);

template <class Closure>
concept RankClosure = std::invocable < std::remove_reference_t<Closure>
&, RankContext& > || std::invocable<std::remove_reference_t<Closure>&, int>;

template <class Given>
Given context_or_rank(RankContext& context) {
  if constexpr (std::is_same_v<Given, int>)
    return context.rank();
  else
    return context;
}

/// As invoke_entry and entry_thunk, for closures that only forks of the caller can call.
template <class Closure>
ReturnedValue invoke_closure(Closure& closure, RankContext& context) {
  using Given = std::conditional_t<std::invocable<Closure&, RankContext&>, RankContext&, int>;
  using Result = std::decay_t<std::invoke_result_t<Closure&, Given>>;
  if constexpr (std::is_void_v<Result>) {
    std::invoke(closure, context_or_rank<Given>(context));
    return {};
  } else {
    return returned_value<Result>(std::invoke(closure, context_or_rank<Given>(context)));
  }
}

template <class Value>
std::set<int> keys_of(const std::map<int, Value>& map) {
  std::set<int> keys;
  for (const auto& [key, value] : map) keys.insert(key);
  return keys;
}

}  // namespace detail

/// Runs `fn(RankContext&, arguments...)` or `fn(int rank, arguments...)` in `options.nprocs` new processes.
///
/// `fn` is a function or a captureless lambda, given as template argument. The arguments are default-constructible, and
/// either trivially copyable without pointers or of a type that cereal can archive. Rows of plain values for parameters
/// of type std::span<const T> or std::string_view are read in place in job memory until `fn` returns. A forked rank
/// ends by std::quick_exit when `fn` has returned: output is flushed, but exit handlers and static destructors of the
/// program run in the program only. Ranks of kSpawn end by std::exit. `fn` may return a value of such a type;
/// ProcessContext::wait() returns it.
/// Blocking: until all ranks have ended, unless `options.join` is false.
/// Errors: ProcessRaisedException, ProcessExitedException: the first failure, after all other ranks were ended.
/// UsageError without a Runtime. SystemError if processes can't be started.
/// Cost: two forks of a libtorch program take a few milliseconds. A row of 256 KiB or more is copied once, and once
/// more by each rank whose parameter is a vector.
template <auto fn, class... Arguments>
ProcessContext spawn(const SpawnOptions& options, Arguments&&... arguments) {
  if (options.nprocs < 1) throw UsageError("spawn: nprocs must be at least 1");
  const detail::EntryKey entry = detail::entry_key<fn>();
  detail::Encoded archive = detail::encode<fn, detail::EntryStyle::kRank>(std::forward<Arguments>(arguments)...);
  ProcessContext context =
      detail::start_function(detail::start_options_of(options), entry, {options.nprocs, {std::move(archive)}});
  if (options.join) context.join();
  return context;
}

/// Runs `closure(RankContext&)` or `closure(int rank)` in forks of the caller: `options.start_method` must be kFork or
/// unset. The closure's return value is handled like a function's. Errors: as above; UsageError while the caller has
/// other threads, because their locks would never be released.
template <detail::RankClosure Closure>
ProcessContext spawn(const SpawnOptions& options, Closure&& closure) {
  if (options.nprocs < 1) throw UsageError("spawn: nprocs must be at least 1");
  if (options.start_method.value_or(StartMethod::kFork) != StartMethod::kFork)
    throw UsageError(
        "spawn: a closure can only be started by StartMethod::kFork; give a function as template argument");
  ProcessContext context =
      detail::start_closure(detail::start_options_of(options), options.nprocs,
                            [&closure](RankContext& rank) { return detail::invoke_closure(closure, rank); });
  if (options.join) context.join();
  return context;
}

// Overloads for wrong calls.
template <auto fn, std::integral Nprocs, class... Arguments>
ProcessContext spawn(Nprocs, Arguments&&...) {
  static_assert(detail::kNever<Nprocs>, "spawn takes options first: write spawn<fn>({.nprocs = 2}, arguments...)");
  std::abort();
}
template <std::integral Nprocs, class Closure>
ProcessContext spawn(Nprocs, Closure&&) {
  static_assert(detail::kNever<Nprocs>, "spawn takes options first: write spawn({.nprocs = 2}, closure)");
  std::abort();
}
template <class Closure, class... Arguments>
requires(sizeof...(Arguments) > 0 || !detail::RankClosure<Closure>) ProcessContext
    spawn(const SpawnOptions&, Closure&&, Arguments&&...) {
  static_assert(detail::kNever<Closure>,
                "a closure for spawn takes a RankContext& or int rank, and captures everything else; pass a function "
                "with arguments as template argument: spawn<fn>({.nprocs = 2}, arguments...)");
  std::abort();
}

/// Starts `fn` once per entry of `args`, with its own arguments for each local rank, and returns at once. `envs` is
/// added to the caller's environment and takes precedence over `options.environment`.
/// Errors: as spawn; UsageError, which shows both sets, if the keys of `args` or of `envs` aren't exactly 0..n-1.
template <auto fn>
ProcessContext start_processes(const StartOptions& options, const std::map<int, detail::ArgumentsOf<fn>>& args) {
  detail::check_local_ranks("args", detail::keys_of(args), args.size());
  const detail::EntryKey entry = detail::entry_key<fn>();
  detail::EncodedArguments encoded{static_cast<int>(args.size()), {}};
  try {
    for (const auto& [local_rank, tuple] : args)
      encoded.archives.push_back(std::apply(
          [](const auto&... each) { return detail::encode<fn, detail::EntryStyle::kRank>(each...); }, tuple));
  } catch (...) {
    encoded.take_back();
    throw;
  }
  return detail::start_function(options, entry, std::move(encoded));
}
template <auto fn>
ProcessContext start_processes(const StartOptions& options, const std::map<int, detail::ArgumentsOf<fn>>& args,
                               const EnvironmentByRank& envs) {
  detail::check_local_ranks("args", detail::keys_of(args), args.size());
  return start_processes<fn>(detail::with_environments(options, envs, args.size()), args);
}

/// A program to start: a path, or a name that is looked up in PATH, and its arguments.
struct Program {
  std::string file = {};
  std::vector<std::string> arguments = {};
  /// Variables added to the caller's environment.
  std::map<std::string, std::string> environment = {};
  /// Standard input: the caller's (end of file if that is a terminal), or end of file at once.
  enum class Input { kCallers, kNone } input = Input::kCallers;
};

/// Starts one process per element, as ranks 0..n-1 of a world, and returns at once. The processes get RANK, LOCAL_RANK,
/// WORLD_SIZE and LOCAL_WORLD_SIZE. A program that makes a Runtime becomes a rank of this job.
/// Errors: as spawn; a program that can't be executed counts as its rank's failure.
ProcessContext start_processes(const StartOptions& options, const std::vector<Program>& programs);
template <std::same_as<Program> One>
ProcessContext start_processes(const StartOptions&, const One&) {
  static_assert(detail::kNever<One>, "start_processes takes a list of programs: write start_processes({}, {program})");
  std::abort();
}

/// Starts the program `file` once per entry of `args`, as above.
/// Errors: also UsageError, which shows both sets, if the keys of `args` or of `envs` aren't exactly 0..n-1.
ProcessContext start_processes(const StartOptions& options, const std::string& file,
                               const std::map<int, Arguments>& args);
ProcessContext start_processes(const StartOptions& options, const std::string& file,
                               const std::map<int, Arguments>& args, const EnvironmentByRank& envs);

}  // namespace retinue
