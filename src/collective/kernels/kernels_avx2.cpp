#include <immintrin.h>

#include "collective/kernels/kernels.h"

// After the headers: what they define inline must stay what every CPU runs, because the linker keeps one copy of it.
#pragma GCC target("avx2,f16c")
#define RETINUE_KERNEL_BYTES 32
#include "collective/kernels/kernels_impl.h"

namespace retinue {

const KernelTable& avx2_kernels() {
  static constexpr KernelTable kTable = make_table<RETINUE_KERNEL_BYTES>();
  return kTable;
}

}  // namespace retinue
