#pragma once

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace retinue {

/// One function at one address; inlining puts several at the same address.
struct SourceFrame {
  std::string function;  ///< Demangled; empty: unknown.
  std::string file;      ///< As the compiler was given it; empty: unknown.
  int line = 0;
  bool is_inlined = false;
};

/// The names in one ELF file, read from disk with libdw. Debug information is looked for in the file itself and by
/// build-id below /usr/lib/debug; nothing is downloaded.
class ObjectSymbols {
 public:
  /// A file that cannot be read gives an object without names.
  explicit ObjectSymbols(const std::string& path);

  /// What stands at `offset` (an ELF virtual address), innermost inlined function first; empty when nothing is known.
  std::vector<SourceFrame> at(std::uint64_t offset) const;

 private:
  struct EndDwfl {
    void operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }
  };

  std::vector<SourceFrame> inlined_frames(std::uint64_t address) const;
  std::string symbol_at(std::uint64_t address) const;

  std::unique_ptr<Dwfl, EndDwfl> dwfl_;
  Dwfl_Module* module_ = nullptr;
  GElf_Addr bias_ = 0;
};

}  // namespace retinue
