#include "collective/kernels/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstring>

namespace retinue {

#if defined(__x86_64__)

namespace {

/// Not by __builtin_cpu_supports, which clang knows without this feature.
bool cpu_has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

bool cpu_has_avx2_kernels() {
  return __builtin_cpu_supports("avx2") != 0 && cpu_has_f16c();
}

bool cpu_has_avx512_kernels() {
  return cpu_has_avx2_kernels() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
}

#else

bool cpu_has_avx2_kernels() {
  return false;
}

bool cpu_has_avx512_kernels() {
  return false;
}

const KernelTable& avx2_kernels() {
  return portable_kernels();
}

const KernelTable& avx512_kernels() {
  return portable_kernels();
}

#endif

const KernelTable& kernels() {
  static const KernelTable& best = cpu_has_avx512_kernels() ? avx512_kernels()
                                   : cpu_has_avx2_kernels() ? avx2_kernels()
                                                            : portable_kernels();
  return best;
}

const KernelTable& line_kernels() {
  static const KernelTable& best = cpu_has_avx2_kernels() ? avx2_kernels() : portable_kernels();
  return best;
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  // The reduction of a single source is the source.
  kernels().get(Dtype::kUint64, ReduceOp::kMax)({&from, 1}, {&to, 1}, bytes / 8);
  const std::size_t rest = bytes % 8;
  std::memcpy(static_cast<char*>(to) + (bytes - rest), static_cast<const char*>(from) + (bytes - rest), rest);
}

void stream_bytes(void* to, const void* from, std::size_t bytes) {
  kernels().stream(to, from, bytes / 64);
  const std::size_t rest = bytes % 64;
  std::memcpy(static_cast<char*>(to) + (bytes - rest), static_cast<const char*>(from) + (bytes - rest), rest);
}

}  // namespace retinue
