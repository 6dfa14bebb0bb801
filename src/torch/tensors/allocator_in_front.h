#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>

namespace retinue {

/// Stands before the CPU allocator that was there: gives job memory to threads with a SharedAllocation, and to
/// backwards the TensorSlots that fit. What raw_allocate() took, such as a scratch pad of oneDNN, may be given back
/// after that, and on another thread.
class AllocatorInFront : public c10::Allocator {
 public:
  static AllocatorInFront& install();
  /// Of this thread: how many SharedAllocations there are.
  static int& guards();

  c10::DataPtr allocate(std::size_t bytes) override;
  bool is_simple_data_ptr(const c10::DataPtr& data) const override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  explicit AllocatorInFront(c10::Allocator* behind) : behind_(behind) {}

  static void free_raw(void* data);

  c10::Allocator* behind_;
};

}  // namespace retinue
