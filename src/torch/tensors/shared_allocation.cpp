#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "retinue/torch/shared_tensor.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

thread_local int guards = 0;

/// Stands before the allocator that was there, for threads that have a guard.
class AllocatorInFront : public c10::Allocator {
 public:
  static void install() {
    static AllocatorInFront* const front = [] {
      auto* const made = new AllocatorInFront(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made);
      return made;
    }();
    static_cast<void>(front);
  }

  c10::DataPtr allocate(std::size_t bytes) override {
    return guards > 0 ? allocate_shared(JobMemory::current(), bytes) : behind_->allocate(bytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override { return behind_->is_simple_data_ptr(data); }
  c10::DeleterFnPtr raw_deleter() const override { return behind_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  explicit AllocatorInFront(c10::Allocator* behind) : behind_(behind) {}

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
