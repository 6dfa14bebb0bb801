#include <immintrin.h>

#include "collective/kernels/kernels.h"

// After the headers: what they define inline must stay what every CPU runs, because the linker keeps one copy of it.
#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")
#define RETINUE_KERNEL_BYTES 64
#include "collective/kernels/kernels_impl.h"

namespace retinue {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = make_table<RETINUE_KERNEL_BYTES>();
  return kTable;
}

}  // namespace retinue
