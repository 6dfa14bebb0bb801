#pragma once

#include <cstddef>
#include <memory>

#include "retinue/ipc/block_handle.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A block of job memory that any number of processes hold together. As an argument, a return value or a message it
/// arrives as the same memory. It is freed when the last process releases it, even if that process is killed. A copy is
/// one more holder, not one more block; a default-constructed object holds nothing.
///
/// Threads: as std::shared_ptr. The users synchronise access to the contents of the memory themselves.
class SharedBlock {
 public:
  SharedBlock() = default;

  /// Allocates `bytes` bytes with unspecified contents, aligned to a page, in the job of this process or in another
  /// job.
  /// Errors: SharedMemoryExhausted, which names the largest holders; UsageError without a Runtime.
  static SharedBlock allocate(std::size_t bytes);
  static SharedBlock allocate(const std::shared_ptr<JobMemory>& memory, std::size_t bytes);

  /// Holds a block that is alive because another process or object holds it. Errors: UsageError if it isn't alive.
  static SharedBlock hold(const std::shared_ptr<JobMemory>& memory, const BlockHandle& handle);

  explicit operator bool() const noexcept { return held_ != nullptr; }
  std::byte* data() const noexcept { return held_ ? held_->data : nullptr; }
  std::size_t bytes() const noexcept { return held_ ? held_->handle.bytes : 0; }
  BlockHandle handle() const noexcept { return held_ ? held_->handle : BlockHandle(); }
  /// Returns null if nothing is held.
  std::shared_ptr<JobMemory> memory() const noexcept { return held_ ? held_->memory : nullptr; }

  /// Returns whether both are the same memory.
  friend bool operator==(const SharedBlock& a, const SharedBlock& b) noexcept { return a.data() == b.data(); }

  template <class Archive>
  void save(Archive& archive) const;
  template <class Archive>
  void load(Archive& archive);

 private:
  /// One hold of this process.
  struct Held {
    Held(std::shared_ptr<JobMemory> in, const BlockHandle& block);
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;

    std::shared_ptr<JobMemory> memory;
    BlockHandle handle;
    std::byte* data;
  };

  std::shared_ptr<const Held> held_;
};

}  // namespace retinue
