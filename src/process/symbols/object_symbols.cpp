#include "process/symbols/object_symbols.h"

#include <dwarf.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/demangle.h"

namespace retinue {
namespace {

int find_no_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, char**, Elf**) {
  return -1;
}

// libdw's standard finder would ask debuginfod servers, which is a wait without an end.
int find_local_debuginfo(Dwfl_Module* module, void** user_data, const char* name, Dwarf_Addr base, const char* file,
                         const char* debug_link, GElf_Word checksum, char** found_name) {
  return libdw().dwfl_build_id_find_debuginfo(module, user_data, name, base, file, debug_link, checksum, found_name);
}

const Dwfl_Callbacks kCallbacks = {
    .find_elf = find_no_file,
    .find_debuginfo = find_local_debuginfo,
    .section_address = nullptr,
    .debuginfo_path = nullptr,
};

/// Of a function. C's have names of their own, some of which would read as mangled types: `f` is no float.
std::string readable(const char* name) {
  if (name == nullptr) return {};
  return std::string_view(name).starts_with("_Z") ? demangled(name) : name;
}

std::string name_of(Dwarf_Die& function) {
  Dwarf_Attribute memory;
  for (const unsigned int attribute : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    const char* name = libdw().dwarf_formstring(libdw().dwarf_attr_integrate(&function, attribute, &memory));
    if (name != nullptr) return readable(name);
  }
  return {};
}

/// The place where an inlined function was called, written into the frame of its caller.
void set_call_site(Dwarf_Die& inlined, Dwarf_Die& unit, SourceFrame& caller) {
  Dwarf_Attribute memory;
  Dwarf_Word line = 0;
  Dwarf_Word file_index = 0;
  Dwarf_Files* files = nullptr;
  if (libdw().dwarf_formudata(libdw().dwarf_attr(&inlined, DW_AT_call_line, &memory), &line) != 0) return;
  if (libdw().dwarf_formudata(libdw().dwarf_attr(&inlined, DW_AT_call_file, &memory), &file_index) != 0) return;
  if (libdw().dwarf_getsrcfiles(&unit, &files, nullptr) != 0) return;
  const char* file = libdw().dwarf_filesrc(files, file_index, nullptr, nullptr);
  if (file != nullptr) caller.file = file;
  caller.line = static_cast<int>(line);
}

struct FreeScopes {
  void operator()(Dwarf_Die* scopes) const { std::free(scopes); }
};
using Scopes = std::unique_ptr<Dwarf_Die, FreeScopes>;

/// The blocks and functions around `address` as they were inlined into each other, innermost first.
Scopes physical_scopes(Dwarf_Die* unit, Dwarf_Addr address, int& count) {
  Dwarf_Die* lexical = nullptr;
  count = libdw().dwarf_getscopes(unit, address, &lexical);
  const Scopes owned(lexical);
  if (count <= 0) return nullptr;
  // dwarf_getscopes() follows an inlined function to where it was written; its own DIE is followed to where it runs.
  Dwarf_Die* physical = nullptr;
  count = libdw().dwarf_getscopes_die(&lexical[0], &physical);
  return Scopes(physical);
}

/// The function that was not inlined: where `address` physically is.
Dwarf_Die* outermost_function(Dwarf_Die* scopes, int count) {
  Dwarf_Die* const end = scopes + std::max(count, 0);
  Dwarf_Die* const found =
      std::find_if(scopes, end, [](Dwarf_Die& scope) { return libdw().dwarf_tag(&scope) == DW_TAG_subprogram; });
  return found == end ? nullptr : found;
}

/// A function's own address range that holds `address`, and the end of its first one.
struct FunctionRange {
  Dwarf_Addr begin = 0;
  Dwarf_Addr first_end = 0;
};

FunctionRange range_around(Dwarf_Die& function, Dwarf_Addr address) {
  FunctionRange found;
  Dwarf_Addr base = 0, begin = 0, end = 0;
  for (ptrdiff_t next = 0; (next = libdw().dwarf_ranges(&function, next, &base, &begin, &end)) > 0;) {
    if (found.first_end == 0) found.first_end = end;
    if (begin <= address && address < end) found.begin = begin;
  }
  return found;
}

/// gcc moves what is rarely executed, throws above all, into a second range, and writes no line for its beginning if it
/// is the one that the first range ended with. The line table then gives a line of some other function.
Dwarf_Line* line_of(Dwarf_Die& unit, Dwarf_Addr address, Dwarf_Die& function) {
  Dwarf_Line* line = libdw().dwarf_getsrc_die(&unit, address);
  const FunctionRange range = range_around(function, address);
  Dwarf_Addr line_begin = 0;
  if (line == nullptr || libdw().dwarf_lineaddr(line, &line_begin) != 0) return nullptr;
  if (line_begin >= range.begin) return line;
  return libdw().dwarf_getsrc_die(&unit, range.first_end - 1);
}

void set_line(Dwarf_Line* line, SourceFrame& frame) {
  if (line == nullptr) return;
  const char* file = libdw().dwarf_linesrc(line, nullptr, nullptr);
  if (file != nullptr && libdw().dwarf_lineno(line, &frame.line) == 0) frame.file = file;
}

}  // namespace

Dwfl_Module* ObjectSymbols::module() {
  if (std::exchange(is_open_, true) || !libdw().problem.empty()) return module_;
  dwfl_.reset(libdw().dwfl_begin(&kCallbacks));
  if (!dwfl_) return nullptr;
  module_ = libdw().dwfl_report_elf(dwfl_.get(), path_.c_str(), path_.c_str(), -1, 0, true);
  libdw().dwfl_report_end(dwfl_.get(), nullptr, nullptr);
  if (module_ != nullptr && libdw().dwfl_module_getelf(module_, &bias_) == nullptr) module_ = nullptr;
  return module_;
}

/// libdw before 0.192 finds units by .debug_aranges alone, which clang does not write. Where other units have it, it
/// takes the one before.
void ObjectSymbols::look_up_units() {
  for (Dwarf_Die* unit = nullptr; (unit = libdw().dwfl_module_nextcu(module_, unit, &units_bias_)) != nullptr;) {
    Dwarf_Addr base = 0, begin = 0, end = 0;
    for (ptrdiff_t next = 0; (next = libdw().dwarf_ranges(unit, next, &base, &begin, &end)) > 0;)
      units_.emplace(begin, Unit{end, unit});
  }
}

/// nullptr: without debug information. Else `address` becomes the unit's own.
Dwarf_Die* ObjectSymbols::unit_at(Dwarf_Addr& address) {
  Dwarf_Addr bias = 0;
  Dwarf_Die* const named = libdw().dwfl_module_addrdie(module_, address, &bias);
  if (named != nullptr && libdw().dwarf_haspc(named, address - bias) > 0) {
    address -= bias;
    return named;
  }
  if (!std::exchange(has_units_, true)) look_up_units();
  address -= units_bias_;
  const auto next = units_.upper_bound(address);
  if (next == units_.begin()) return nullptr;
  const Unit& unit = std::prev(next)->second;
  return address < unit.end ? unit.die : nullptr;
}

std::vector<SourceFrame> ObjectSymbols::inlined_frames(std::uint64_t address) {
  std::vector<SourceFrame> frames;
  Dwarf_Die* const unit = unit_at(address);
  if (unit == nullptr) return frames;
  int count = 0;
  const Scopes scopes = physical_scopes(unit, address, count);
  SourceFrame next;
  Dwarf_Die* const function = outermost_function(scopes.get(), count);
  set_line(function ? line_of(*unit, address, *function) : libdw().dwarf_getsrc_die(unit, address), next);
  for (int i = 0; i < count; ++i) {
    Dwarf_Die& scope = scopes.get()[i];
    const int tag = libdw().dwarf_tag(&scope);
    if (tag != DW_TAG_inlined_subroutine && tag != DW_TAG_subprogram) continue;
    next.function = name_of(scope);
    next.is_inlined = tag == DW_TAG_inlined_subroutine;
    frames.push_back(next);
    if (!next.is_inlined) break;
    next = SourceFrame{};
    set_call_site(scope, *unit, next);
  }
  // libdw does not look for functions inside functions, such as a lambda's body at -O0: their line is known all the
  // same.
  if (frames.empty()) frames.push_back(next);
  return frames;
}

const char* ObjectSymbols::name_in_libdw(std::uint64_t offset) {
  if (module() == nullptr) return nullptr;
  GElf_Sym symbol;
  GElf_Off into_symbol = 0;
  return libdw().dwfl_module_addrinfo(module_, offset + bias_, &into_symbol, &symbol, nullptr, nullptr, nullptr);
}

void ObjectSymbols::look_up(const std::vector<std::uint64_t>& offsets) {
  std::vector<std::uint64_t> wanted;
  for (const std::uint64_t offset : offsets)
    if (!functions_.contains(offset)) wanted.push_back(offset);
  if (wanted.empty()) return;
  const std::vector<std::string> names = table_.names_at(wanted);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const bool asks_libdw = names[i].empty() && table_.has_more();
    const std::string function = readable(asks_libdw ? name_in_libdw(wanted[i]) : names[i].c_str());
    // The parts and variants that the compiler made of a function: "train() [clone .cold]".
    functions_.emplace(wanted[i], function.substr(0, function.find(" [clone ")));
  }
}

const std::string& ObjectSymbols::function_at(std::uint64_t offset) {
  look_up({offset});
  return functions_.at(offset);
}

std::vector<SourceFrame> ObjectSymbols::at(std::uint64_t offset) {
  std::vector<SourceFrame> frames;
  if (module() != nullptr) frames = inlined_frames(offset + bias_);
  // At -g1 the debug information has short names only for functions of unnamed namespaces; the symbol table has all.
  const std::string& function = function_at(offset);
  if (function.empty()) return frames;
  if (frames.empty()) frames.emplace_back();
  if (!frames.back().is_inlined) frames.back().function = function;
  return frames;
}

}  // namespace retinue
