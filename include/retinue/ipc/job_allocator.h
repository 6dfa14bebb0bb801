#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

namespace detail {
/// Ends one hold of the block at `pointer`. Doesn't throw: what it can't free is returned when the process ends.
void release_job_memory(JobMemory& memory, const void* pointer) noexcept;
}  // namespace detail

/// An allocator that takes the elements of a standard container from job memory, where collectives and messages of
/// other ranks read them without a copy. The container itself remains in this process: others can access the elements
/// by calls only.
///
/// Threads: as std::allocator. Errors: SharedMemoryExhausted from allocate(), which names the largest holders.
/// Cost: one block for each allocation, at least a page: use it for a few large arrays.
template <class T>
class JobAllocator {
  static_assert(alignof(T) <= 4096, "blocks are aligned to a page");

 public:
  using value_type = T;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;

  /// Allocates in the job of this process. Errors: UsageError without a Runtime.
  JobAllocator() : JobAllocator(JobMemory::current()) {}
  explicit JobAllocator(std::shared_ptr<JobMemory> memory) : memory_(std::move(memory)) {}
  template <class U>
  JobAllocator(const JobAllocator<U>& other) noexcept  // NOLINT(google-explicit-constructor): as std::allocator.
      : memory_(other.memory()) {}

  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / sizeof(T)) throw std::bad_array_new_length();
    return memory_->at<T>(memory_->allocate(count * sizeof(T)).offset);
  }
  void deallocate(T* elements, std::size_t) noexcept { detail::release_job_memory(*memory_, elements); }

  const std::shared_ptr<JobMemory>& memory() const noexcept { return memory_; }

  template <class U>
  friend bool operator==(const JobAllocator& a, const JobAllocator<U>& b) noexcept {
    return a.memory() == b.memory();
  }

 private:
  std::shared_ptr<JobMemory> memory_;
};

/// A vector with its elements in job memory.
template <class T>
using JobVector = std::vector<T, JobAllocator<T>>;

}  // namespace retinue
