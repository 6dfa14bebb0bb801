#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "process/symbols/libdw.h"
#include "process/symbols/symbol_table.h"

namespace retinue {

/// One function at one address; inlining puts several at the same address.
struct SourceFrame {
  std::string function;  ///< Demangled; empty: unknown.
  std::string file;      ///< As the compiler was given it; empty: unknown.
  int line = 0;
  bool is_inlined = false;
};

/// The names in one ELF file, read from disk: functions from its symbol table, files, lines and inlined functions with
/// libdw. Debug information is looked for in the file itself and by build-id below /usr/lib/debug; nothing is
/// downloaded. Both are opened when they are first needed.
class ObjectSymbols {
 public:
  /// A file that cannot be read gives an object without names.
  explicit ObjectSymbols(std::string path) : path_(std::move(path)), table_(path_) {}

  /// Looks for the functions at `offsets` (ELF virtual addresses), all in one walk through the symbol table. Those that
  /// it is not told of here cost a walk each.
  void look_up(const std::vector<std::uint64_t>& offsets);

  /// The function at `offset` that was not inlined, demangled; empty: unknown.
  const std::string& function_at(std::uint64_t offset);

  /// What stands at `offset`, innermost inlined function first; empty when nothing is known.
  std::vector<SourceFrame> at(std::uint64_t offset);

 private:
  struct EndDwfl {
    void operator()(Dwfl* dwfl) const { libdw().dwfl_end(dwfl); }
  };

  struct Unit {
    std::uint64_t end;
    Dwarf_Die* die;
  };

  Dwfl_Module* module();
  void look_up_units();
  Dwarf_Die* unit_at(Dwarf_Addr& address);
  std::vector<SourceFrame> inlined_frames(std::uint64_t address);
  const char* name_in_libdw(std::uint64_t offset);

  std::string path_;
  SymbolTable table_;
  std::map<std::uint64_t, std::string> functions_;  ///< By offset.
  bool is_open_ = false;
  std::unique_ptr<Dwfl, EndDwfl> dwfl_;
  Dwfl_Module* module_ = nullptr;
  GElf_Addr bias_ = 0;
  bool has_units_ = false;
  Dwarf_Addr units_bias_ = 0;
  std::map<std::uint64_t, Unit> units_;  ///< By their first addresses.
};

}  // namespace retinue
