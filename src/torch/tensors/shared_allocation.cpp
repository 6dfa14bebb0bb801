#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "retinue/torch/shared_tensor.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

thread_local int guards = 0;

/// Stands before the allocator that was there, for threads that have a guard. What raw_allocate() took, such as a
/// scratch pad of oneDNN, may be given back after the guard's end, and on another thread.
class AllocatorInFront : public c10::Allocator {
 public:
  static AllocatorInFront& install() {
    static AllocatorInFront* const front = [] {
      auto* const made = new AllocatorInFront(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made);
      return made;
    }();
    return *front;
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    return guards > 0 ? allocate_shared_raw(JobMemory::current(), bytes) : behind_->allocate(bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return !is_shared(data) && behind_->is_simple_data_ptr(data);
  }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter() ? &free_raw : nullptr; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  explicit AllocatorInFront(c10::Allocator* behind) : behind_(behind) {}

  static void free_raw(void* data) {
    if (!free_shared_raw(data)) install().behind_->raw_deallocate(data);
  }

  c10::Allocator* behind_;
};

}  // namespace

SharedAllocation::SharedAllocation() {
  JobMemory::current();
  AllocatorInFront::install();
  ++guards;
}

SharedAllocation::~SharedAllocation() {
  --guards;
}

}  // namespace retinue
