#pragma once

#include <string>

/// What only the build knows. In a unit of its own: such words among the flags of all units would have each of them
/// compiled anew for every folder and version, whatever a compiler cache holds.
namespace retinue::bench {

std::string version();
/// The folder of the source tree.
std::string source_folder();
/// The Python whose PyTorch the build found; empty if none.
std::string build_python();

}  // namespace retinue::bench
