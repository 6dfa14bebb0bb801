#include "torch/groups/freed_memory.h"

#include <malloc.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>

namespace retinue {
namespace {

constexpr int kLargestKept = 32 << 20;  // The most that malloc accepts.

bool environment_sets_malloc() {
  const char* const tunables = std::getenv("GLIBC_TUNABLES");
  if (tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos) return true;
  constexpr const char* kNames[] = {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_",
                                    "MALLOC_MMAP_MAX_"};
  return std::ranges::any_of(kNames, [](const char* name) { return std::getenv(name) != nullptr; });
}

}  // namespace

void keep_freed_memory() {
  const char* const wish = std::getenv("RETINUE_KEEP_FREED_MEMORY");
  if ((wish != nullptr && std::string_view(wish) == "0") || environment_sets_malloc()) return;
  mallopt(M_MMAP_THRESHOLD, kLargestKept);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
}

}  // namespace retinue
