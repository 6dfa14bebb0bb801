#include "collective/kernels.h"

#include <cstring>

namespace retinue {

bool cpu_has_avx2_kernels() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
}

bool cpu_has_avx512_kernels() {
  return cpu_has_avx2_kernels() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

const KernelTable& kernels() {
  static const KernelTable& best = cpu_has_avx512_kernels() ? avx512_kernels()
                                   : cpu_has_avx2_kernels() ? avx2_kernels()
                                                            : portable_kernels();
  return best;
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  // The reduction of a single source is the source.
  kernels().get(Dtype::kUint64, ReduceOp::kMax)(&from, 1, &to, 1, bytes / 8);
  const std::size_t rest = bytes % 8;
  std::memcpy(static_cast<char*>(to) + (bytes - rest), static_cast<const char*>(from) + (bytes - rest), rest);
}

void stream_bytes(void* to, const void* from, std::size_t bytes) {
  kernels().stream(to, from, bytes / 64);
  const std::size_t rest = bytes % 64;
  std::memcpy(static_cast<char*>(to) + (bytes - rest), static_cast<const char*>(from) + (bytes - rest), rest);
}

}  // namespace retinue
