#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Places in job memory for tensors of certain sizes, such as gradients. While a place is free, the first tensor of
/// exactly its size that a backward of this process makes is made there. It is free again when that tensor is gone.
/// A fork of the process gets none of them.
///
/// Threads: any.
class TensorSlots {
 public:
  /// One slot for each of `bytes`. Errors: SharedMemoryExhausted.
  TensorSlots(const std::shared_ptr<JobMemory>& memory, const std::vector<std::size_t>& bytes);
  /// The memory is freed when no tensor is left in it.
  ~TensorSlots();
  TensorSlots(const TensorSlots&) = delete;
  TensorSlots& operator=(const TensorSlots&) = delete;

  /// A slot of that size; null: all are taken.
  c10::DataPtr take(std::size_t bytes);

  /// Whether `data` is a slot of any of this process's TensorSlots.
  static bool contains(const void* data);

  struct Pool;

 private:
  Pool* pool_;
};

/// What the allocator asks: a slot for a tensor that a backward makes, null if none fits; and, for memory of any kind,
/// whether it was a slot that is free now.
c10::DataPtr take_slot_in_backward(std::size_t bytes);
bool free_slot(void* data);

}  // namespace retinue
