#define RETINUE_KERNEL_BYTES 16
#include "collective/kernels/kernels_impl.h"

namespace retinue {

const KernelTable& portable_kernels() {
  static constexpr KernelTable kTable = make_table<RETINUE_KERNEL_BYTES>();
  return kTable;
}

}  // namespace retinue
