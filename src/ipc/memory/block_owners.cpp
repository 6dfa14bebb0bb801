#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "ipc/memory/locked_blocks.h"
#include "ipc/memory/process_table.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"

/// Who owns a block, and who is its owner through another block.
namespace retinue {
namespace {

/// Of this process, without a system call; forks by fork() are noticed, those by the guardian enter a slot.
std::atomic<int>& known_pid() {
  static std::atomic<int> pid = [] {
    pthread_atfork(nullptr, nullptr, [] { known_pid().store(getpid(), std::memory_order_relaxed); });
    return getpid();
  }();
  return pid;
}

[[maybe_unused]] const std::atomic<int>& pid_at_start = known_pid();  // See made_at_start in os/sync/futex.cpp.

/// Of all that this process holds, that block. Without the table's lock: a block that is held stays what it is.
template <class Holds>
Holds* find_held(std::vector<Holds>& all, const BlockTable& table, const BlockHandle& handle) {
  if (handle.index >= all.size()) return nullptr;
  Holds& holds = all[handle.index];
  const BlockDescriptor& block = table.descriptors[handle.index];
  const bool is_held = holds.count != 0 && holds.generation == handle.generation &&
                       block.used.load(std::memory_order_relaxed) != 0 && is_handle_of(table, block, handle);
  return is_held ? &holds : nullptr;
}

bool is_not_dead(const ProcessSlot& slot) {
  return slot.state.load(std::memory_order_acquire) != ProcessState::kDead;
}

}  // namespace

void JobMemory::set_own_slot(std::uint32_t process_slot) {
  known_pid().store(getpid(), std::memory_order_relaxed);
  if (slot_of_fork_ != process_slot) holds_.clear();
  slot_of_fork_ = kNoSlot;
  owner_pid_ = getpid();
  own_slot_ = process_slot;
}

bool JobMemory::is_of_this_process() const noexcept {
  return owner_pid_ == known_pid().load(std::memory_order_relaxed);
}

std::uint32_t& JobMemory::holds_of(std::uint32_t index, std::uint32_t generation) {
  if (index >= holds_.size()) holds_.resize(std::max<std::size_t>(index + 1, holds_.size() * 2));
  Holds& holds = holds_[index];
  if (holds.generation != generation) holds = {generation, 0};
  return holds.count;
}

void JobMemory::check_process(const char* operation) const {
  if (owner_pid_ == 0 || is_of_this_process()) return;
  throw UsageError(fmt::format(
      "JobMemory::{}: this process was forked by fork(), not by Retinue, and is not a process of the job, which would "
      "never free the memory that it holds; start it by spawn with StartMethod::kFork, or by Process",
      operation));
}

void JobMemory::retain(const BlockHandle& handle) {
  check_process("retain");
  const std::uint64_t bit = owner_bit(own_slot());
  const std::lock_guard counting(holds_mutex_);
  if (Holds* const held = find_held(holds_, header().blocks, handle)) {
    ++held->count;
    return;
  }
  const LockedBlocks blocks(*this);
  RETINUE_CRASH_POINT();
  blocks.alive(handle, "retain").owners[own_slot() / 64].fetch_or(bit, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  ++holds_of(handle.index, handle.generation);
}

void JobMemory::release(const BlockHandle& handle) {
  if (!is_of_this_process()) return;
  const std::uint64_t bit = owner_bit(own_slot());
  const std::lock_guard counting(holds_mutex_);
  if (Holds* const held = find_held(holds_, header().blocks, handle); held != nullptr && held->count > 1) {
    --held->count;
    return;
  }
  const LockedBlocks blocks(*this);
  BlockDescriptor& block = blocks.alive(handle, "release");
  std::uint32_t& holds = holds_of(handle.index, handle.generation);
  if (holds > 0 && --holds > 0) return;
  RETINUE_CRASH_POINT();
  block.owners[own_slot() / 64].fetch_and(~bit, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  blocks.free_if_unowned(handle.index);
}

void JobMemory::retain(const BlockHandle& handle, std::uint32_t process_slot) {
  const std::uint64_t bit = owner_bit(process_slot);
  const LockedBlocks blocks(*this);
  blocks.alive(handle, "retain").owners[process_slot / 64].fetch_or(bit, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
}

void JobMemory::release(const BlockHandle& handle, std::uint32_t process_slot) {
  const std::uint64_t bit = owner_bit(process_slot);
  const std::lock_guard counting(holds_mutex_);
  if (process_slot == own_slot() && handle.index < holds_.size() &&
      holds_[handle.index].generation == handle.generation)
    holds_[handle.index].count = 0;
  const LockedBlocks blocks(*this);
  blocks.alive(handle, "release").owners[process_slot / 64].fetch_and(~bit, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
  blocks.free_if_unowned(handle.index);
}

void JobMemory::release_all(std::uint32_t process_slot) {
  const std::uint64_t bit = owner_bit(process_slot);
  const LockedBlocks blocks(*this);
  for (std::uint32_t i = 0; i < blocks.table().descriptor_end; ++i) {
    BlockDescriptor& block = blocks.table().descriptors[i];
    if (block.used.load(std::memory_order_relaxed) == 0) continue;
    const std::uint64_t before = block.owners[process_slot / 64].fetch_and(~bit, std::memory_order_relaxed);
    RETINUE_CRASH_POINT();
    if ((before & bit) != 0) blocks.free_if_unowned(i);
  }
}

void JobMemory::retain_holds_for(std::uint32_t process_slot) {
  const std::uint64_t bit = owner_bit(process_slot);
  const std::lock_guard counting(holds_mutex_);
  slot_of_fork_ = process_slot;
  if (std::all_of(holds_.begin(), holds_.end(), [](const Holds& holds) { return holds.count == 0; })) return;
  const LockedBlocks blocks(*this);
  for (std::size_t index = 0; index < holds_.size(); ++index) {
    BlockDescriptor& block = blocks.table().descriptors[index];
    if (holds_[index].count == 0 || block.generation != holds_[index].generation) continue;
    block.owners[process_slot / 64].fetch_or(bit, std::memory_order_relaxed);
    RETINUE_CRASH_POINT();
  }
}

void JobMemory::carry(const BlockHandle& handle, std::span<const BlockHandle> carried) {
  if (carried.empty()) return;
  const LockedBlocks blocks(*this);
  BlockDescriptor& block = blocks.alive(handle, "carry");
  if (block.carried_count != 0 || carried.size_bytes() > handle.bytes)
    throw UsageError(
        fmt::format("JobMemory::carry: block {} of {} bytes carries {} blocks already, and cannot carry {}",
                    handle.index, handle.bytes, block.carried_count, carried.size()));
  for (const BlockHandle& other : carried) blocks.alive(other, "carry");
  std::memcpy(at(handle.offset), carried.data(), carried.size_bytes());
  std::atomic_signal_fence(std::memory_order_release);  // Who is killed here must not carry what is not written yet.
  RETINUE_CRASH_POINT();
  block.carried_count = static_cast<std::uint32_t>(carried.size());
  for (const BlockHandle& other : carried) {
    RETINUE_CRASH_POINT();
    ++blocks.table().descriptors[other.index].references;
  }
  RETINUE_CRASH_POINT();
}

void JobMemory::set_reference_lists(const BlockHandle& handle, const ReferenceLists& lists) {
  const LockedBlocks blocks(*this);
  BlockDescriptor& block = blocks.alive(handle, "set_reference_lists");
  block.first_list = lists.first;
  block.list_stride = lists.stride;
  block.list_capacity = lists.capacity;
  RETINUE_CRASH_POINT();
  std::atomic_signal_fence(std::memory_order_release);  // Who is killed here has none, or all that there is to them.
  block.list_count = lists.count;
  RETINUE_CRASH_POINT();
}

void JobMemory::set_references(const BlockHandle& handle, std::uint32_t index, std::span<const BlockHandle> carried) {
  const LockedBlocks blocks(*this);
  BlockDescriptor& block = blocks.alive(handle, "set_references");
  if (index >= block.list_count || carried.size() > block.list_capacity)
    throw UsageError(fmt::format(
        "JobMemory::set_references: block {} has {} lists of at most {} blocks; {} blocks in list {} don't fit",
        handle.index, block.list_count, block.list_capacity, carried.size(), index));
  for (const BlockHandle& other : carried) blocks.alive(other, "set_references");
  ReferenceList& list = blocks.list(block, index);
  blocks.clear(block, list);
  blocks.fill(block, list, carried);
  RETINUE_CRASH_POINT();
}

void JobMemory::clear_references(const BlockHandle& handle, std::uint32_t index, const std::atomic<std::uint64_t>& word,
                                 std::uint64_t expected) {
  const LockedBlocks blocks(*this);
  BlockDescriptor& block = blocks.alive(handle, "clear_references");
  if (index >= block.list_count || word.load(std::memory_order_seq_cst) != expected) return;
  RETINUE_CRASH_POINT();
  blocks.clear(block, blocks.list(block, index));
  RETINUE_CRASH_POINT();
}

/// Without the table's lock: what a block carries is written before it is handed on, and never changes.
std::span<const BlockHandle> JobMemory::carried_by(const BlockHandle& handle) const {
  const BlockTable& table = header().blocks;
  const BlockDescriptor* const block = handle.index < kMaxBlocks ? &table.descriptors[handle.index] : nullptr;
  if (block == nullptr || block->used.load(std::memory_order_acquire) == 0 || !is_handle_of(table, *block, handle))
    throw UsageError(
        fmt::format("JobMemory::carried_by: block {} at offset {} is not alive", handle.index, handle.offset));
  return {at<BlockHandle>(handle.offset), block->carried_count};
}

/// The handles are overwritten first: who repairs counts from them.
void JobMemory::release_carried(const BlockHandle& handle) {
  const LockedBlocks blocks(*this);
  const BlockDescriptor& block = blocks.alive(handle, "release_carried");
  for (std::uint32_t i = 0; i < block.carried_count; ++i) {
    const BlockHandle carried = std::exchange(at<BlockHandle>(handle.offset)[i], BlockHandle());
    BlockDescriptor* const other = blocks.find(carried);
    if (other == nullptr || other->references == 0) continue;
    --other->references;
    blocks.free_if_unowned(carried.index);
  }
}

bool JobMemory::is_held(const BlockHandle& handle) const {
  return has_owner_that(handle, [](const ProcessSlot& slot) { return is_not_dead(slot); });
}

bool JobMemory::may_be_used(const BlockHandle& handle) const {
  return has_owner_that(handle, [](const ProcessSlot& slot) { return is_not_dead(slot) || slot.abandoned_in != 0; });
}

template <class Condition>
bool JobMemory::has_owner_that(const BlockHandle& handle, Condition condition) const {
  const LockedBlocks blocks(*this);
  const BlockDescriptor* const block = blocks.find(handle);
  if (block == nullptr) return false;
  if (block->references != 0 || block->holder != 0) return true;
  for (std::uint32_t word = 0; word < kOwnerWords; ++word) {
    for (std::uint64_t bits = block->owners[word].load(std::memory_order_relaxed); bits != 0; bits &= bits - 1) {
      const std::uint32_t slot = word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
      if (condition(process_slot(*this, slot))) return true;
    }
  }
  return false;
}

void JobMemory::hand_over(const BlockHandle& handle, const BlockHandle& holder) {
  check_process("hand_over");
  const std::uint64_t bit = owner_bit(own_slot());
  const std::lock_guard counting(holds_mutex_);
  const LockedBlocks blocks(*this);
  BlockDescriptor& block = blocks.alive(handle, "hand_over");
  BlockDescriptor& to = blocks.alive(holder, "hand_over");
  if (block.holder != 0)
    throw UsageError(
        fmt::format("JobMemory::hand_over: block {} is held by block {} already", handle.index, block.holder - 1));
  RETINUE_CRASH_POINT();
  block.holder = holder.index + 1;
  RETINUE_CRASH_POINT();
  ++to.held_count;
  std::uint32_t& holds = holds_of(handle.index, handle.generation);
  RETINUE_CRASH_POINT();
  if (holds == 0 || --holds == 0) block.owners[own_slot() / 64].fetch_and(~bit, std::memory_order_relaxed);
  RETINUE_CRASH_POINT();
}

bool JobMemory::take_from_holder(const BlockHandle& handle, const BlockHandle& holder) {
  const LockedBlocks blocks(*this);
  BlockDescriptor* const block = blocks.find(handle);
  if (block == nullptr || block->holder != holder.index + 1) return false;
  RETINUE_CRASH_POINT();
  block->holder = 0;
  RETINUE_CRASH_POINT();
  --blocks.table().descriptors[holder.index].held_count;
  RETINUE_CRASH_POINT();
  blocks.free_if_unowned(handle.index);
  return true;
}

}  // namespace retinue
