#include "process/symbols/symbol_table.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "os/files/file_descriptor.h"

namespace retinue {
namespace {

using Symbol = ElfW(Sym);

template <class Value>
std::span<const Value> array_in(std::span<const std::byte> data) {
  if (reinterpret_cast<std::uintptr_t>(data.data()) % alignof(Value) != 0) return {};
  return {reinterpret_cast<const Value*>(data.data()), data.size() / sizeof(Value)};
}

std::string_view text_at(std::span<const std::byte> strings, std::size_t offset) {
  if (offset >= strings.size()) return {};
  const char* const text = reinterpret_cast<const char*>(strings.data()) + offset;
  return {text, strnlen(text, strings.size() - offset)};
}

/// As `debuginfo` packages have it: /usr/lib/debug/.build-id/93/ac61....debug.
std::string debug_file_of(const ElfFile& file) {
  for (const ElfFile::Section& section : file.sections()) {
    if (section.type != SHT_NOTE || section.data.size() < sizeof(ElfW(Nhdr))) continue;
    ElfW(Nhdr) note;
    std::memcpy(&note, section.data.data(), sizeof note);
    constexpr std::uint64_t kNameBytes = 4;  // "GNU" and its end.
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != kNameBytes || note.n_descsz < 2) continue;
    std::string path = "/usr/lib/debug/.build-id/";
    constexpr const char* kDigits = "0123456789abcdef";
    const auto id = part_of(section.data, sizeof note + kNameBytes, note.n_descsz);
    for (std::size_t i = 0; i < id.size(); ++i) {
      const auto value = std::to_integer<unsigned>(id[i]);
      path += {kDigits[value >> 4], kDigits[value & 15]};
      if (i == 0) path += '/';
    }
    return path + ".debug";
  }
  return {};
}

/// What is known of an address while the symbols go by.
struct Search {
  std::uint64_t address = 0;
  std::size_t index = 0;  ///< Of the address in the question.
  std::uint16_t section = 0;
  const Symbol* closest = nullptr;  ///< Holds the address.
  const Symbol* label = nullptr;    ///< Has no size and stands before it, as in hand-written assembly.
  std::uint64_t labels_begin = 0;   ///< Labels before this belong to functions that have ended.
};

int rank_of_binding(const Symbol& symbol) {
  const unsigned char binding = ELF64_ST_BIND(symbol.st_info);
  return binding == STB_GLOBAL ? 2 : binding == STB_WEAK ? 1 : 0;
}

bool is_better(const Symbol& one, const Symbol& other) {
  if (one.st_value != other.st_value) return one.st_value > other.st_value;
  if (one.st_size != other.st_size) return one.st_size < other.st_size;
  return rank_of_binding(one) > rank_of_binding(other);
}

void consider(const Symbol& symbol, Search& search) {
  if (symbol.st_size == 0) {
    const bool is_near = search.label == nullptr || symbol.st_value > search.label->st_value;
    if (symbol.st_shndx == search.section && is_near) search.label = &symbol;
    return;
  }
  const std::uint64_t end = symbol.st_value + symbol.st_size;
  if (end <= search.address) {
    search.labels_begin = std::max(search.labels_begin, end);
  } else if (search.closest == nullptr || is_better(symbol, *search.closest)) {
    search.closest = &symbol;
  }
}

bool names_code(const Symbol& symbol) {
  const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
  return symbol.st_shndx != SHN_UNDEF && symbol.st_name != 0 && type != STT_SECTION && type != STT_FILE &&
         type != STT_TLS;
}

/// The searches are sorted by address. Most symbols are before or behind all addresses, or far from any.
void walk(std::span<const Symbol> symbols, std::span<Search> searches) {
  const std::uint64_t last = searches.back().address;
  for (const Symbol& symbol : symbols) {
    if (symbol.st_value > last || !names_code(symbol)) continue;
    const auto first = std::ranges::lower_bound(searches, symbol.st_value, {}, &Search::address);
    // Those behind the symbol's end learn only where labels may begin, and the next one is enough to tell.
    for (auto search = first; search != searches.end(); ++search) {
      consider(symbol, *search);
      if (symbol.st_size != 0 && symbol.st_value + symbol.st_size <= search->address) break;
    }
  }
}

std::vector<Search> searches_for(std::span<const std::uint64_t> addresses, const ElfFile& file) {
  std::vector<Search> searches;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto holds = [&](const ElfFile::Section& section) {
      return section.is_loaded && addresses[i] - section.address < section.bytes;
    };
    const auto section = std::ranges::find_if(file.sections(), holds);
    if (section == file.sections().end()) continue;
    Search search;
    search.address = addresses[i];
    search.index = i;
    search.section = static_cast<std::uint16_t>(section - file.sections().begin());
    searches.push_back(search);
  }
  std::ranges::sort(searches, {}, &Search::address);
  return searches;
}

/// False: the file has no such table.
bool look_up(const ElfFile& file, std::uint32_t table, std::span<const std::uint64_t> addresses,
             std::vector<std::string>& names) {
  const ElfFile::Section* const section = file.find(table);
  if (section == nullptr || section->link >= file.sections().size() || section->data.empty()) return false;
  std::vector<Search> searches = searches_for(addresses, file);
  if (searches.empty()) return true;
  walk(array_in<Symbol>(section->data), searches);
  std::uint64_t labels_begin = 0;
  for (const Search& search : searches) {
    labels_begin = std::max(labels_begin, search.labels_begin);
    const bool has_label = search.label != nullptr && search.label->st_value >= labels_begin;
    const Symbol* const found = search.closest != nullptr ? search.closest : has_label ? search.label : nullptr;
    if (found != nullptr) names[search.index] = text_at(file.sections()[section->link].data, found->st_name);
  }
  return true;
}

}  // namespace

std::span<const std::byte> part_of(std::span<const std::byte> whole, std::uint64_t offset, std::uint64_t bytes) {
  if (offset > whole.size() || bytes > whole.size() - offset) return {};
  return whole.subspan(offset, bytes);
}

ElfFile::ElfFile(const std::string& path) {
  // Not blocking: a path of a dead process may lead to anything by now.
  const FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return;
  void* const mapped = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (mapped == MAP_FAILED) return;
  base_ = static_cast<const std::byte*>(mapped);
  bytes_ = static_cast<std::size_t>(status.st_size);
  read_sections();
}

ElfFile::~ElfFile() {
  if (base_ != nullptr) munmap(const_cast<std::byte*>(base_), bytes_);
}

void ElfFile::read_sections() {
  const std::span<const std::byte> whole(base_, bytes_);
  ElfW(Ehdr) header;
  if (bytes_ < sizeof header) return;
  std::memcpy(&header, base_, sizeof header);
  constexpr unsigned char kClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;
  constexpr unsigned char kOrder = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != kClass ||
      header.e_ident[EI_DATA] != kOrder || header.e_shentsize != sizeof(ElfW(Shdr)))
    return;
  const auto table = part_of(whole, header.e_shoff, header.e_shnum * sizeof(ElfW(Shdr)));
  std::vector<ElfW(Shdr)> headers(table.size() / sizeof(ElfW(Shdr)));
  if (headers.empty()) return;
  std::memcpy(headers.data(), table.data(), headers.size() * sizeof(ElfW(Shdr)));
  const ElfW(Shdr)& of_names = headers[header.e_shstrndx < headers.size() ? header.e_shstrndx : 0];
  const auto names = part_of(whole, of_names.sh_offset, of_names.sh_size);
  for (const ElfW(Shdr) & found : headers) {
    Section& section = sections_.emplace_back();
    section.name = text_at(names, found.sh_name);
    section.type = found.sh_type;
    section.link = found.sh_link;
    section.address = found.sh_addr;
    section.bytes = found.sh_size;
    section.is_loaded = (found.sh_flags & SHF_ALLOC) != 0;
    if (found.sh_type != SHT_NOBITS) section.data = part_of(whole, found.sh_offset, found.sh_size);
  }
}

const ElfFile::Section* ElfFile::find(std::uint32_t type) const {
  const auto found = std::ranges::find(sections_, type, &Section::type);
  return found == sections_.end() ? nullptr : &*found;
}

std::vector<std::string> SymbolTable::names_at(std::span<const std::uint64_t> addresses) {
  std::vector<std::string> names(addresses.size());
  const ElfFile file(path_);
  if (look_up(file, SHT_SYMTAB, addresses, names)) return names;
  if (const std::string debug_file = debug_file_of(file); !debug_file.empty())
    if (look_up(ElfFile(debug_file), SHT_SYMTAB, addresses, names)) return names;
  has_more_ = std::ranges::count(file.sections(), ".gnu_debugdata", &ElfFile::Section::name) > 0;
  look_up(file, SHT_DYNSYM, addresses, names);
  return names;
}

}  // namespace retinue
