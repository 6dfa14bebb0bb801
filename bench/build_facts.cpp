#include "build_facts.h"

namespace retinue::bench {

std::string version() {
  return RETINUE_VERSION;
}
std::string source_folder() {
  return RETINUE_SOURCE_DIR;
}
std::string build_python() {
  return RETINUE_TORCH_PYTHON;
}

}  // namespace retinue::bench
