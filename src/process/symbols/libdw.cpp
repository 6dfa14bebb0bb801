#include "process/symbols/libdw.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace retinue {
namespace {

constexpr const char* kFile = "libdw.so.1";

template <class Function>
void find(void* library, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && problem.empty()) problem = fmt::format("{} has no {}: it is too old", kFile, name);
}

LibDw load() {
  LibDw functions;
  void* const library = dlopen(kFile, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) {
    functions.problem = fmt::format("{}: install libdw1 (Debian, Ubuntu) or elfutils-libs", dlerror());
    return functions;
  }
#define RETINUE_FIND_LIBDW(name) find(library, #name, functions.name, functions.problem);
  RETINUE_LIBDW_FUNCTIONS(RETINUE_FIND_LIBDW)
#undef RETINUE_FIND_LIBDW
  return functions;
}

}  // namespace

const LibDw& libdw() {
  static const LibDw& functions = *new LibDw(load());  // To the end of the process, as the library itself.
  return functions;
}

}  // namespace retinue
