#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "retinue/ipc/block_handle.h"

namespace retinue {

struct JobHeader;

/// The use of a block. Some of the table's entries are reserved for the runtime's own blocks.
enum class BlockUse { kData, kRuntime };

/// The memory that all processes of a job share: one sparse sealed memfd that each of them maps completely.
///
/// It has no name, so nothing can be left behind: the kernel frees it when its last process has ended. Pages are
/// committed when a block first uses them, as huge pages if the kernel has them. They are kept for later blocks,
/// because a first touch costs much more than a copy.
///
/// Threads: all functions may be called from any thread of any process of the job.
class JobMemory {
 public:
  /// Makes the memory of a new job. A `capacity_bytes` of 0 means half of the smaller of RAM and the memory cgroup's
  /// limit.
  /// Errors: SystemError; UsageError for a capacity that is too small to hold the job's tables.
  static std::shared_ptr<JobMemory> create(std::size_t capacity_bytes);

  /// Maps the memory behind `memfd`, which the caller continues to own. Errors: UsageError if it isn't a job's memory
  /// or was made by another version of Retinue.
  static std::shared_ptr<JobMemory> attach(int memfd);

  /// Returns the memory of the job that this process belongs to. Errors: UsageError without a Runtime.
  static const std::shared_ptr<JobMemory>& current();
  /// As current(), but returns null without a Runtime.
  static const JobMemory* current_or_null() noexcept;
  /// Called by Runtime only.
  static void set_current(std::shared_ptr<JobMemory> memory);

  ~JobMemory();
  JobMemory(const JobMemory&) = delete;
  JobMemory& operator=(const JobMemory&) = delete;

  std::byte* base() const noexcept { return base_; }
  /// Returns the number of bytes that the memory may grow to, including tables.
  std::size_t capacity_bytes() const noexcept { return capacity_; }
  /// Returns the memfd, which is close-on-exec and owned by this object.
  int memfd() const noexcept { return memfd_; }
  JobHeader& header() const noexcept { return *reinterpret_cast<JobHeader*>(base_); }

  /// Returns whether `bytes` bytes at `pointer` are in job memory.
  bool contains(const void* pointer, std::size_t bytes = 1) const noexcept;
  std::uint64_t offset_of(const void* pointer) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(pointer) - base_);
  }
  template <typename T = std::byte>
  T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }

  /// Returns a block of at least `bytes` bytes, aligned to a page, with unspecified contents, held once by the calling
  /// process.
  /// Errors: SharedMemoryExhausted, which names the largest holders.
  /// Cost: a microsecond for pages that were used before. New pages take about a second per 15 GB, or per 1 GB if the
  /// kernel has no huge pages left.
  BlockHandle allocate(std::size_t bytes, BlockUse use = BlockUse::kData);

  /// Adds a hold of the calling process on a block that is alive. Errors: UsageError if it isn't.
  void retain(const BlockHandle& block);
  /// Ends one hold. The last hold of the last owner frees the block. In a process that was forked without Retinue's
  /// knowledge this does nothing: the holds belong to its parent process.
  void release(const BlockHandle& block);

  /// Makes the process in slot `process_slot` an additional owner of the block.
  void retain(const BlockHandle& block, std::uint32_t process_slot);
  /// Ends that process's ownership, including all its holds if it is the calling process.
  void release(const BlockHandle& block, std::uint32_t process_slot);
  /// Ends every ownership of a process that has ended. Called by the guardian.
  void release_all(std::uint32_t process_slot);
  /// Makes the process in `process_slot` an owner of all that this process holds. That process is about to be forked
  /// from this one and to take that slot.
  void retain_holds_for(std::uint32_t process_slot);

  /// Writes `carried` to the start of `block`, which has space for them and belongs to the caller. They live as long as
  /// the block. Call it once per block. Errors: UsageError if one of them isn't alive.
  void carry(const BlockHandle& block, std::span<const BlockHandle> carried);
  /// Returns what the block carries. The caller holds the block.
  std::span<const BlockHandle> carried_by(const BlockHandle& block) const;

  /// Sets the position of the block's lists: further blocks that it carries, which come and go. All lists are empty.
  void set_reference_lists(const BlockHandle& block, const ReferenceLists& lists);
  /// Replaces the contents of a list by `carried`. Errors: UsageError if one of them isn't alive.
  void set_references(const BlockHandle& block, std::uint32_t list, std::span<const BlockHandle> carried);
  /// Releases the blocks on a list if `word` is as expected: a process that fills the list changes `word` first.
  void clear_references(const BlockHandle& block, std::uint32_t list, const std::atomic<std::uint64_t>& word,
                        std::uint64_t expected);

  /// Removes all that `block` carries in its first bytes; its contents remain. Called by the guardian.
  void release_carried(const BlockHandle& block);
  /// Returns whether a living process or another block owns `block`.
  bool is_held(const BlockHandle& block) const;
  /// As is_held(), but also true for a process that was abandoned because the kernel couldn't end it: it may still use
  /// it.
  bool may_be_used(const BlockHandle& block) const;

  /// Replaces one hold of the calling process on `block` by ownership by `holder`: `block` is freed at the latest with
  /// it.
  void hand_over(const BlockHandle& block, const BlockHandle& holder);
  /// Ends the holder's ownership of `block`. Returns false and does nothing if it wasn't, or is no longer, an owner.
  bool take_from_holder(const BlockHandle& block, const BlockHandle& holder);

  /// Returns the block that contains `pointer`, if any.
  std::optional<BlockHandle> find(const void* pointer) const;

  /// Returns the number of bytes in blocks that are alive. Cost: a scan of the block table.
  std::size_t allocated_bytes() const;

  /// Returns the slot of this process in the job's process table, or kNoSlot before it has one.
  std::uint32_t own_slot() const noexcept { return own_slot_; }
  /// Makes this process become another one of the job. Called by enter_process_slot() only.
  void set_own_slot(std::uint32_t process_slot);
  static constexpr std::chrono::seconds kLockPatience{30};
  /// Sets how long an operation waits for another process that is in the block table before it throws TimeoutError.
  void set_lock_patience(std::chrono::nanoseconds patience) noexcept { lock_patience_.store(patience); }
  std::chrono::nanoseconds lock_patience() const noexcept { return lock_patience_.load(); }
  static constexpr std::uint32_t kNoSlot = 0xffffffffu;
  /// Returns false in a process that was forked without Retinue's knowledge: the slot is its parent's.
  bool is_of_this_process() const noexcept;

 private:
  JobMemory(int memfd, std::byte* base, std::size_t capacity);

  /// How often this process holds a block. Generations reveal holds that another process released for this slot.
  struct Holds {
    std::uint32_t generation = 0;
    std::uint32_t count = 0;
  };
  std::uint32_t& holds_of(std::uint32_t index, std::uint32_t generation);
  void check_process(const char* operation) const;
  /// Returns whether the owners include another block, or a process for which `condition` is true.
  template <class Condition>
  bool has_owner_that(const BlockHandle& block, Condition condition) const;

  int memfd_;
  std::byte* base_;
  std::size_t capacity_;
  std::uint32_t own_slot_ = kNoSlot;
  std::uint32_t slot_of_fork_ = kNoSlot;  ///< The slot that `holds_` will also belong to, once it is forked.
  int owner_pid_ = 0;                     ///< The process that `own_slot_` belongs to.
  std::mutex holds_mutex_;                ///< Locked before the table's.
  std::vector<Holds> holds_;              ///< This process's holds, by block index.
  std::atomic<std::chrono::nanoseconds> lock_patience_{kLockPatience};
};

}  // namespace retinue
