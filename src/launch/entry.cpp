#include "retinue/launch/entry.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>

#include "os/process_calls.h"
#include "retinue/base/error.h"

namespace retinue::detail {
namespace {

std::string path_of(const dl_phdr_info& info) {
  return info.dlpi_name != nullptr && *info.dlpi_name != '\0' ? info.dlpi_name : executable_path();
}

std::string build_id_of(const dl_phdr_info& info) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const auto* note = reinterpret_cast<const char*>(info.dlpi_addr + segment.p_vaddr);
    const char* end = note + segment.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, note, sizeof header);
      const char* name = note + sizeof header;
      const char* description = name + ((header.n_namesz + 3) & ~3u);
      if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        std::string id;
        for (unsigned byte = 0; byte < header.n_descsz; ++byte)
          id += fmt::format("{:02x}", static_cast<unsigned char>(description[byte]));
        return id;
      }
      note = description + ((header.n_descsz + 3) & ~3u);
    }
  }
  return {};
}

/// What tells two binaries apart: the linker's build-id, or the file itself where it was linked without one.
std::string id_of(const dl_phdr_info& info) {
  std::string build_id = build_id_of(info);
  if (!build_id.empty()) return build_id;
  struct stat status {};
  std::string path = path_of(info);
  if (stat(path.c_str(), &status) != 0) return path;
  return fmt::format("{}:{}:{}.{}", path, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

bool holds(const dl_phdr_info& info, std::uintptr_t address) {
  for (int i = 0; i < info.dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info.dlpi_phdr[i];
    const std::uintptr_t first = info.dlpi_addr + segment.p_vaddr;
    if (segment.p_type == PT_LOAD && address >= first && address < first + segment.p_memsz) return true;
  }
  return false;
}

template <class Visit>
void for_each_object(Visit visit) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) -> int { return (*static_cast<Visit*>(data))(*info) ? 1 : 0; },
      &visit);
}

}  // namespace

EntryKey key_of(EntryThunk thunk, const char* type) {
  const auto address = reinterpret_cast<std::uintptr_t>(thunk);
  EntryKey key;
  for_each_object([&](const dl_phdr_info& info) {
    if (!holds(info, address)) return false;
    key = {id_of(info), path_of(info), address - info.dlpi_addr, type};
    return true;
  });
  if (key.object_id.empty()) throw UsageError(fmt::format("the function to start lies in no loaded object: {}", type));
  return key;
}

EntryThunk find_entry(const EntryKey& key) {
  EntryThunk thunk = nullptr;
  for_each_object([&](const dl_phdr_info& info) {
    if (id_of(info) != key.object_id) return false;
    thunk = reinterpret_cast<EntryThunk>(info.dlpi_addr + key.offset);
    return true;
  });
  if (thunk == nullptr)
    throw UsageError(
        fmt::format("this rank has no {} (build-id {}), where the function to start lives: it was loaded "
                    "after Runtime was made, or changed since; load it before, or use StartMethod::kFork; "
                    "function: {}",
                    key.object_path, key.object_id, key.type));
  return thunk;
}

}  // namespace retinue::detail
