#include "ipc/ring_user.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "ipc/crash_point.h"
#include "ipc/message_ring.h"
#include "os/heavy_barrier.h"

namespace retinue {
namespace {

constexpr std::uint64_t kIsMain = std::uint64_t{1} << 26;
constexpr int kThreadShift = 32;
constexpr std::uint32_t kMostTakeovers = 8;

}  // namespace

thread_local constinit RingUser::Known RingUser::known_;

void RingUser::know(const JobMemory& memory) {
  static std::atomic<std::uint32_t> count{0};
  const std::uint64_t number = count.fetch_add(1, std::memory_order_relaxed) % 0x7fffffffu + 1;
  const bool is_main = syscall(SYS_gettid) == getpid();
  known_ = {&memory, memory.own_slot(), number << kThreadShift | (is_main ? kIsMain : 0) | own_owner(memory)};
}

bool RingUser::is_gone(const JobMemory& memory, std::uint64_t user) {
  const auto owner = static_cast<std::uint32_t>(user & (kIsMain - 1));
  return (user & kIsMain) != 0 ? owner_is_gone(memory, owner) : owner_is_reaped(memory, owner);
}

/// Whether the side's last user, who lost it, is in no operation. What one that died had announced is taken back.
bool MessageRing::is_settled(RingSide& side, std::uint64_t user) {
  for (;;) {
    const RingPosition hint{side.hint.load(std::memory_order_seq_cst)};
    if (hint.value == 0) return true;
    const RingPosition last = hint.before(capacity_);
    const SlotPhase phase = &side == &header_->put ? SlotPhase::kEmpty : SlotPhase::kFull;
    const SlotState unchanged(last.lap(), phase);
    if (state_of(last.index()).load(std::memory_order_seq_cst) != unchanged.word()) return true;
    if (!RingUser::is_gone(memory_, user)) return side.hint.load(std::memory_order_seq_cst) != hint.value;
    RETINUE_CRASH_POINT();
    std::uint64_t expected = hint.value;
    side.hint.compare_exchange_strong(expected, last.value, std::memory_order_seq_cst);
  }
}

/// Makes `next` the user of the side, which others use or nobody does. kLater: its user is in an operation.
MessageRing::Access MessageRing::change_user(RingSide& side, std::uint64_t self, std::uint64_t next) {
  for (;;) {
    std::uint64_t user = side.user.load(std::memory_order_seq_cst);
    if (user == RingUser::kEverybody) return Access::kShared;
    if (user == self && next == self) return Access::kSolo;
    if (next == self && (side.takeovers.load(std::memory_order_relaxed) >= kMostTakeovers || !accept_heavy_barriers()))
      next = RingUser::kEverybody;
    RETINUE_CRASH_POINT();
    if (user == RingUser::kNobody) {
      side.user.compare_exchange_strong(user, next, std::memory_order_seq_cst);
      continue;
    }
    const std::uint64_t losing = user | RingUser::kLosing;
    if (user != losing && !side.user.compare_exchange_strong(user, losing, std::memory_order_seq_cst)) continue;
    const std::uint64_t loser = losing & ~RingUser::kLosing;
    if (loser != self) {
      RETINUE_CRASH_POINT();
      heavy_barrier();
      if (!is_settled(side, loser)) return Access::kLater;
    }
    RETINUE_CRASH_POINT();
    side.takeovers.fetch_add(1, std::memory_order_relaxed);
    std::uint64_t expected = losing;
    side.user.compare_exchange_strong(expected, next, std::memory_order_seq_cst);
  }
}

MessageRing::Access MessageRing::gain_access(RingSide& side) {
  const std::uint64_t self = RingUser::self(memory_);
  return change_user(side, self, self);
}

bool MessageRing::share(RingSide& side) {
  return change_user(side, RingUser::self(memory_), RingUser::kEverybody) == Access::kShared;
}

void MessageRing::see_solo_users() const {
  if (!has_words_) return;
  for (const RingSide* side : {&header_->put, &header_->get}) {
    const std::uint64_t user = side->user.load(std::memory_order_seq_cst);
    if (user == RingUser::kNobody || user == RingUser::kEverybody || user == RingUser::self(memory_)) continue;
    heavy_barrier();
    return;
  }
}

}  // namespace retinue
