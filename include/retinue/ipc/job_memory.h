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

/// What a block is for. Some of the table's entries are kept for the runtime's own blocks.
enum class BlockUse { kData, kRuntime };

/// The memory that all processes of a job share: one sparse sealed memfd, mapped whole by each of them.
///
/// It has no name, so nothing can be left behind: the kernel frees it when its last process is gone. Pages are
/// committed when a block first uses them, as huge pages where the kernel has them, and are kept for later blocks,
/// because a first touch costs much more than a copy.
///
/// Threads: all functions may be called from any thread of any process of the job.
class JobMemory {
 public:
  /// Makes the memory of a new job. `capacity_bytes` 0 means half of the smaller of RAM and the memory cgroup's limit.
  /// Errors: SystemError; UsageError for a capacity that is too small to hold the job's tables.
  static std::shared_ptr<JobMemory> create(std::size_t capacity_bytes);

  /// Maps the memory behind `memfd`, which stays the caller's. Errors: UsageError if it is not a job's memory or was
  /// made by another version of Retinue.
  static std::shared_ptr<JobMemory> attach(int memfd);

  /// That of the job that this process belongs to. Errors: UsageError without a Runtime.
  static const std::shared_ptr<JobMemory>& current();
  /// The same, and null without one.
  static const JobMemory* current_or_null() noexcept;
  /// Called by Runtime only.
  static void set_current(std::shared_ptr<JobMemory> memory);

  ~JobMemory();
  JobMemory(const JobMemory&) = delete;
  JobMemory& operator=(const JobMemory&) = delete;

  std::byte* base() const noexcept { return base_; }
  /// Bytes that the memory may grow to, tables included.
  std::size_t capacity_bytes() const noexcept { return capacity_; }
  /// The memfd, close-on-exec, owned by this object.
  int memfd() const noexcept { return memfd_; }
  JobHeader& header() const noexcept { return *reinterpret_cast<JobHeader*>(base_); }

  /// Whether `bytes` bytes at `pointer` lie in job memory.
  bool contains(const void* pointer, std::size_t bytes = 1) const noexcept;
  std::uint64_t offset_of(const void* pointer) const noexcept {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(pointer) - base_);
  }
  template <typename T = std::byte>
  T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(base_ + offset);
  }

  /// A block of at least `bytes` bytes, aligned to a page, with unspecified contents, held once by the calling process.
  /// Errors: SharedMemoryExhausted, which names the largest holders.
  /// Cost: a microsecond for pages that were used before; for new ones about a second per 15 GB, per 1 GB where the
  /// kernel has no huge pages to give.
  BlockHandle allocate(std::size_t bytes, BlockUse use = BlockUse::kData);

  /// One more hold of the calling process on a block that is alive. Errors: UsageError if it is not.
  void retain(const BlockHandle& block);
  /// Ends one hold; the last one of the last owner frees the block. In a process that was forked without Retinue's
  /// knowledge it does nothing: the holds are those of the process that it was forked from.
  void release(const BlockHandle& block);

  /// Makes the process in slot `process_slot` one more owner of the block.
  void retain(const BlockHandle& block, std::uint32_t process_slot);
  /// Ends that process's ownership, with all its holds where it is the calling one.
  void release(const BlockHandle& block, std::uint32_t process_slot);
  /// Ends every ownership of a process that is gone. Called by the guardian.
  void release_all(std::uint32_t process_slot);
  /// Makes the process in `process_slot`, which is about to be forked from this one and to take its place there, an
  /// owner of all that this process holds.
  void retain_holds_for(std::uint32_t process_slot);

  /// Writes `carried` to the start of `block`, which has room for them there and is one's own: they live as long as it
  /// does. Once for a block. Errors: UsageError if one of them is not alive.
  void carry(const BlockHandle& block, std::span<const BlockHandle> carried);
  /// What the block carries. The caller holds it.
  std::span<const BlockHandle> carried_by(const BlockHandle& block) const;

  /// Says where the block's shelves are: lists of blocks that it carries besides, which come and go. All are empty.
  void set_shelves(const BlockHandle& block, const BlockShelves& shelves);
  /// Puts `carried` on a shelf, in place of what is there. Errors: UsageError if one of them is not alive.
  void fill_shelf(const BlockHandle& block, std::uint32_t shelf, std::span<const BlockHandle> carried);
  /// Lets go of what is on a shelf, if `word` is as expected: who fills it has changed that before.
  void clear_shelf(const BlockHandle& block, std::uint32_t shelf, const std::atomic<std::uint64_t>& word,
                   std::uint64_t expected);

  /// Ends that `block` carries anything in its first bytes; its contents stay. Called by the guardian.
  void let_go_of_carried(const BlockHandle& block);
  /// Whether a process that lives, or another block, owns `block`.
  bool is_held(const BlockHandle& block) const;
  /// The same, or a process that was abandoned, since the kernel could not end it: it may still be at it.
  bool may_be_used(const BlockHandle& block) const;

  /// Makes `holder` an owner of `block` in place of one hold of the calling process: freed at the latest with it.
  void hand_over(const BlockHandle& block, const BlockHandle& holder);
  /// Ends the holder's ownership of `block`. Returns false, and does nothing, where it was none (any more).
  bool take_from_holder(const BlockHandle& block, const BlockHandle& holder);

  /// The block that holds `pointer`, if any.
  std::optional<BlockHandle> find(const void* pointer) const;

  /// Bytes in blocks that are alive. Cost: a scan of the block table.
  std::size_t allocated_bytes() const;

  /// The slot of this process in the job's process table; kNoSlot before it has one.
  std::uint32_t own_slot() const noexcept { return own_slot_; }
  /// Called by enter_process_slot() only: this process begins to be another one of the job.
  void set_own_slot(std::uint32_t process_slot);
  static constexpr std::chrono::seconds kLockPatience{30};
  /// How long an operation waits for another process that is in the block table; then it throws TimeoutError.
  void set_lock_patience(std::chrono::nanoseconds patience) noexcept { lock_patience_.store(patience); }
  std::chrono::nanoseconds lock_patience() const noexcept { return lock_patience_.load(); }
  static constexpr std::uint32_t kNoSlot = 0xffffffffu;
  /// False in a process that was forked without Retinue's knowledge: the slot is its parent's.
  bool is_of_this_process() const noexcept;

 private:
  JobMemory(int memfd, std::byte* base, std::size_t capacity);

  /// How often this process holds a block. Those that were released for its slot by another are told by generations.
  struct Holds {
    std::uint32_t generation = 0;
    std::uint32_t count = 0;
  };
  std::uint32_t& holds_of(std::uint32_t index, std::uint32_t generation);
  void check_process(const char* operation) const;
  /// Another block, or a process of which `condition` holds.
  template <class Condition>
  bool has_owner_that(const BlockHandle& block, Condition condition) const;

  int memfd_;
  std::byte* base_;
  std::size_t capacity_;
  std::uint32_t own_slot_ = kNoSlot;
  std::uint32_t slot_of_fork_ = kNoSlot;  ///< Whose holds `holds_` will be too, once it is forked.
  int owner_pid_ = 0;                     ///< The process that `own_slot_` is.
  std::mutex holds_mutex_;                ///< Taken before the table's.
  std::vector<Holds> holds_;              ///< By block index: this process's.
  std::atomic<std::chrono::nanoseconds> lock_patience_{kLockPatience};
};

}  // namespace retinue
