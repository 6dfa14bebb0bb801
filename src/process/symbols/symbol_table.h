#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// A file of this machine's ELF, mapped. Whatever is wrong with it: it has no sections then.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  struct Section {
    std::string_view name;
    std::uint32_t type = 0;
    std::uint32_t link = 0;
    std::uint64_t address = 0;
    std::uint64_t bytes = 0;
    std::span<const std::byte> data;  ///< Empty where the file does not hold it.
    bool is_loaded = false;
  };
  const std::vector<Section>& sections() const { return sections_; }
  /// The first one of the type; nullptr: there is none.
  const Section* find(std::uint32_t type) const;

 private:
  void read_sections();

  const std::byte* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<Section> sections_;
};

/// Of what a file says of itself: empty where `whole` does not hold all of it.
std::span<const std::byte> part_of(std::span<const std::byte> whole, std::uint64_t offset, std::uint64_t bytes);

/// The names of functions in an object, as its symbol table has them: that in the file itself, in its debug file below
/// /usr/lib/debug, or of what it exports.
///
/// libdw knows symbol tables too, but takes 17 ms for each address in one of LibTorch's size. Here many addresses cost
/// one walk of 3 ms at most.
class SymbolTable {
 public:
  /// A file that cannot be read gives an object without names.
  explicit SymbolTable(std::string path) : path_(std::move(path)) {}

  /// The mangled names at ELF virtual addresses, in their order; empty: there is none.
  std::vector<std::string> names_at(std::span<const std::uint64_t> addresses);

  /// Known after names_at(): the object has a compressed table besides, which this class does not read.
  bool has_more() const { return has_more_; }

 private:
  std::string path_;
  bool has_more_ = false;
};

}  // namespace retinue
