#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace retinue {

/// A place in a program's code that has the same name in every process that runs the same binary, wherever that is
/// mapped.
struct CodePlace {
  std::string object_id;  ///< The linker's build-id, or the file itself where it was linked without one.
  std::string object_path;
  std::uint64_t offset = 0;
};

/// Nothing where the address lies in no loaded object.
std::optional<CodePlace> place_of_code(std::uintptr_t address);

/// Nothing where this process has no object with that id.
std::optional<std::uintptr_t> address_of_code(const std::string& object_id, std::uint64_t offset);

}  // namespace retinue
