#include "launch/runtime/write_profiles.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "process/symbols/symbol_table.h"

// There in programs alone that are built for it.
extern "C" {
// gcc's --coverage and -fprofile-generate.
[[gnu::weak]] void __gcov_exit();
// clang's --coverage; gcc has it where the program calls it.
[[gnu::weak]] void __gcov_dump();
// clang's -fprofile-instr-generate.
[[gnu::weak]] int __llvm_profile_write_file();
[[gnu::weak]] void __llvm_profile_set_filename(const char* pattern);
}

namespace retinue {
namespace {

/// The pid in its name was that of the program when it began. A pattern that is the one before isn't read again.
void name_llvm_profile() {
  const char* pattern = std::getenv("LLVM_PROFILE_FILE");
  if (pattern == nullptr || std::string_view(pattern).find("%p") == std::string_view::npos) return;
  __llvm_profile_set_filename(nullptr);
  __llvm_profile_set_filename(pattern);
}

/// A shared library in this process.
struct Library {
  std::string path;
  std::uintptr_t base = 0;  ///< What its file's addresses are moved by.
  std::uintptr_t end = 0;   ///< Of what it has in memory.
  std::span<const std::byte> code;
};

std::vector<Library> loaded_libraries() {
  std::vector<Library> libraries;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        Library library{.path = info->dlpi_name, .base = info->dlpi_addr, .end = info->dlpi_addr, .code = {}};
        for (const ElfW(Phdr) & segment : std::span(info->dlpi_phdr, info->dlpi_phnum)) {
          if (segment.p_type != PT_LOAD) continue;
          const std::uintptr_t begin = library.base + segment.p_vaddr;
          library.end = std::max(library.end, begin + segment.p_memsz);
          if ((segment.p_flags & PF_X) != 0)
            library.code = {reinterpret_cast<const std::byte*>(begin), segment.p_filesz};
        }
        // The program itself has no name here.
        if (!library.path.empty()) static_cast<std::vector<Library>*>(data)->push_back(std::move(library));
        return 0;
      },
      &libraries);
  return libraries;
}

/// gcc's profiler, which each library that is built for it has a copy of, exports this variable alone. Quick also for
/// libraries whose symbol tables are long.
bool has_gcov(const Library& library) {
  // Never closed: the library must not go while its profile is written, and the process ends after that.
  void* const handle = dlopen(library.path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  // Or a library that this one needs has it.
  const auto address = reinterpret_cast<std::uintptr_t>(dlsym(handle, "__gcov_master"));
  return address >= library.base && address < library.end;
}

using WriteProfile = void (*)();

/// The library's own function, which it hides from the linker: only the symbol table in its file tells where it is.
WriteProfile gcov_exit_of(const Library& library) {
  const ElfFile file(library.path);
  const ElfFile::Section* const table = file.find(SHT_SYMTAB);
  if (table == nullptr || table->link >= file.sections().size()) return nullptr;
  const auto strings = file.sections()[table->link].data;
  constexpr std::string_view kName("__gcov_exit", sizeof "__gcov_exit");  // With its end.
  for (std::size_t at = 0; at + sizeof(ElfW(Sym)) <= table->data.size(); at += sizeof(ElfW(Sym))) {
    ElfW(Sym) symbol;
    std::memcpy(&symbol, table->data.data() + at, sizeof symbol);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx >= file.sections().size()) continue;
    const auto name = part_of(strings, symbol.st_name, kName.size());
    if (name.empty() || std::memcmp(name.data(), kName.data(), kName.size()) != 0) continue;
    // The file may be another one by now, where the library was built anew while this program ran.
    const ElfFile::Section& section = file.sections()[symbol.st_shndx];
    const auto in_file = part_of(section.data, symbol.st_value - section.address, symbol.st_size);
    const auto code_begin = reinterpret_cast<std::uintptr_t>(library.code.data());
    const auto loaded = part_of(library.code, library.base + symbol.st_value - code_begin, symbol.st_size);
    if (!loaded.empty() && std::ranges::equal(loaded, in_file))
      return reinterpret_cast<WriteProfile>(reinterpret_cast<std::uintptr_t>(loaded.data()));
  }
  return nullptr;
}

void write_profiles_of_libraries() {
  for (const Library& library : loaded_libraries()) {
    const WriteProfile write = has_gcov(library) ? gcov_exit_of(library) : nullptr;
    // Not twice where Retinue itself is linked into this library.
    if (write != nullptr && write != &__gcov_exit) write();
  }
}

}  // namespace

void write_profiles() {
  write_profiles_of_libraries();
  if (__gcov_exit != nullptr) {
    __gcov_exit();
  } else if (__gcov_dump != nullptr) {
    __gcov_dump();
  }
  if (__llvm_profile_write_file == nullptr) return;
  if (__llvm_profile_set_filename != nullptr) name_llvm_profile();
  __llvm_profile_write_file();
}

}  // namespace retinue
