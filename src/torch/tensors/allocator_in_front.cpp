#include "torch/tensors/allocator_in_front.h"

#include <c10/core/CPUAllocator.h>

#include <utility>

#include "torch/tensors/shared_storage.h"
#include "torch/tensors/tensor_slots.h"

namespace retinue {

AllocatorInFront& AllocatorInFront::install() {
  static AllocatorInFront* const front = [] {
    auto* const made = new AllocatorInFront(c10::GetCPUAllocator());
    c10::SetCPUAllocator(made);
    return made;
  }();
  return *front;
}

int& AllocatorInFront::guards() {
  static thread_local int count = 0;
  return count;
}

c10::DataPtr AllocatorInFront::allocate(std::size_t bytes) {
  if (guards() > 0) return allocate_shared_raw(JobMemory::current(), bytes);
  c10::DataPtr slot = take_slot_in_backward(bytes);
  return slot ? std::move(slot) : behind_->allocate(bytes);
}

bool AllocatorInFront::is_simple_data_ptr(const c10::DataPtr& data) const {
  return !is_shared(data) && !TensorSlots::contains(data.get()) && behind_->is_simple_data_ptr(data);
}

c10::DeleterFnPtr AllocatorInFront::raw_deleter() const {
  return behind_->raw_deleter() ? &free_raw : nullptr;
}

void AllocatorInFront::free_raw(void* data) {
  if (!free_shared_raw(data) && !free_slot(data)) install().behind_->raw_deallocate(data);
}

}  // namespace retinue
