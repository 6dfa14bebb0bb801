#include "collective/board/relay.h"

#include <utility>

#include "os/testing/crash_point.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

/// `from` is whole, and stays so.
void copy_line(LineData& to, const LineData& from) {
  to.head.store(from.head.load(std::memory_order_relaxed), std::memory_order_relaxed);
  to.count.store(from.count.load(std::memory_order_relaxed), std::memory_order_relaxed);
  to.where.store(from.where.load(std::memory_order_relaxed), std::memory_order_relaxed);
  for (std::size_t i = 0; i < from.inline_data.size(); ++i)
    to.inline_data[i].store(from.inline_data[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
  to.sequence.store(from.sequence.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

}  // namespace

Relay::Relay(const JobGroup& group, const Board& board, const BlockHandle& board_block, Domains domains)
    : memory_(*group.memory), board_(board), domains_(std::move(domains)), rank_(group.rank), own_(0) {
  for (const int leader : domains_.leaders) members_.push_back(domains_.members_of(leader));
  while (domains_.leaders[own_] != domains_.leader_of[static_cast<std::size_t>(rank_)]) ++own_;
  slots_.resize(members_.size());
  if (!leads()) return;
  JobMemory& memory = *group.memory;
  const BlockHandle block = memory.allocate(kLines * bytes_of_slot(), BlockUse::kRuntime);
  for (std::uint64_t i = 0; i < kLines; ++i) {
    auto& slot = *memory.at<RelaySlot>(block.offset + i * bytes_of_slot());
    slot.own_copied.store(0, std::memory_order_relaxed);
    slot.all_copied.store(0, std::memory_order_relaxed);
  }
  // It lives as long as the board: others may look at it when its leader has ended.
  memory.hand_over(block, board_block);
  board_.member(rank_).relay.store(block.offset, std::memory_order_release);  // Pairs with slot_of().
}

RelaySlot* Relay::slot_of(std::size_t domain) {
  std::byte*& slots = slots_[domain];
  if (slots == nullptr) {
    const std::uint64_t offset = board_.member(domains_.leaders[domain]).relay.load(std::memory_order_acquire);
    if (offset == 0) return nullptr;
    slots = memory_.at(offset);
  }
  return reinterpret_cast<RelaySlot*>(slots + sequence_ % kLines * bytes_of_slot());
}

void Relay::begin(std::uint64_t sequence) {
  sequence_ = sequence;
  copied_members_ = 0;
  copied_domains_ = 0;
}

const LineData* Relay::advance() {
  RelaySlot* const slot = slot_of(own_);
  if (slot == nullptr) return nullptr;
  if (leads()) return copy_own(*slot) && copy_others(*slot) ? slot->lines : nullptr;
  // Pairs with the release in copy_others().
  return slot->all_copied.load(std::memory_order_acquire) == sequence_ ? slot->lines : nullptr;
}

bool Relay::copy_own(RelaySlot& slot) {
  const std::vector<int>& members = members_[own_];
  if (copied_members_ == members.size()) return true;
  for (; copied_members_ < members.size(); ++copied_members_) {
    const int member = members[copied_members_];
    const LineData& line = board_.member(member).lines[sequence_ % kLines];
    if (line.sequence.load(std::memory_order_acquire) < sequence_) return false;  // Pairs with Session::publish().
    copy_line(slot.lines[member], line);
  }
  RETINUE_CRASH_POINT();
  slot.own_copied.store(sequence_, std::memory_order_release);  // Pairs with copy_others().
  return true;
}

bool Relay::copy_others(RelaySlot& slot) {
  for (; copied_domains_ < members_.size(); ++copied_domains_) {
    if (copied_domains_ == own_) continue;
    const RelaySlot* const other = slot_of(copied_domains_);
    if (other == nullptr || other->own_copied.load(std::memory_order_acquire) != sequence_) return false;
    for (const int member : members_[copied_domains_]) copy_line(slot.lines[member], other->lines[member]);
  }
  RETINUE_CRASH_POINT();
  slot.all_copied.store(sequence_, std::memory_order_release);  // Pairs with advance().
  return true;
}

}  // namespace retinue
