#include "retinue/torch/shared_tensor.h"
#include "torch/tensors/allocator_in_front.h"

namespace retinue {

SharedAllocation::SharedAllocation() {
  JobMemory::current();
  AllocatorInFront::install();
  ++AllocatorInFront::guards();
}

SharedAllocation::~SharedAllocation() {
  --AllocatorInFront::guards();
}

}  // namespace retinue
