#include "os/process/loaded_objects.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/stat.h>

#include <cstring>

#include "os/process/process_calls.h"

namespace retinue {
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

std::optional<CodePlace> place_of_code(std::uintptr_t address) {
  std::optional<CodePlace> place;
  for_each_object([&](const dl_phdr_info& info) {
    if (!holds(info, address)) return false;
    place = CodePlace{id_of(info), path_of(info), address - info.dlpi_addr};
    return true;
  });
  return place;
}

std::optional<std::uintptr_t> address_of_code(const std::string& object_id, std::uint64_t offset) {
  std::optional<std::uintptr_t> address;
  for_each_object([&](const dl_phdr_info& info) {
    if (id_of(info) != object_id) return false;
    address = info.dlpi_addr + offset;
    return true;
  });
  return address;
}

}  // namespace retinue
