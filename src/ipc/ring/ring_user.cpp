#include "ipc/ring/ring_user.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

#include "ipc/ring/message_ring.h"
#include "os/sync/heavy_barrier.h"
#include "os/testing/crash_point.h"

namespace retinue {
namespace {

constexpr std::uint64_t kIsMain = std::uint64_t{1} << 26;
constexpr int kThreadShift = 32;

}  // namespace

thread_local constinit RingUser::Known RingUser::known;
// A fork is another one. Not a static of know(): see made_at_start in os/sync/futex.cpp.
const int RingUser::kForkHandler = pthread_atfork(nullptr, nullptr, [] { known = {}; });

void RingUser::know(const JobMemory& memory) {
  static std::atomic<std::uint32_t> count{0};
  if (!memory.is_of_this_process()) {
    known = {&memory, memory.own_slot(),
             kEverybody};  // Forked without Retinue's knowledge: it shares its parent's slot.
    return;
  }
  const std::uint64_t number = count.fetch_add(1, std::memory_order_relaxed) % 0x7fffffffu + 1;
  const bool is_main = syscall(SYS_gettid) == getpid();
  known = {&memory, memory.own_slot(), number << kThreadShift | (is_main ? kIsMain : 0) | own_owner(memory)};
}

bool RingUser::is_gone(const JobMemory& memory, std::uint64_t user) {
  const auto owner = static_cast<std::uint32_t>(user & (kIsMain - 1));
  return (user & kIsMain) != 0 ? owner_is_gone(memory, owner) : owner_is_reaped(memory, owner);
}

/// Where the side's next user goes on; nothing while its last one, who lost it, is in an operation. What one that died
/// had only announced did not happen.
std::optional<RingPosition> MessageRing::settled_position(const RingSide& side, std::uint64_t user) const {
  for (;;) {
    const RingPosition at{side.alone[RingUser::turn_of(user)].load(std::memory_order_seq_cst)};
    if (at.value == 0) return at;
    const RingPosition last = at.before(capacity_);
    const SlotState unchanged(last.lap(), &side == &header_->put ? SlotPhase::kEmpty : SlotPhase::kFull);
    const bool is_gone = RingUser::is_gone(memory_, user);
    if (state_of(last.index()).load(std::memory_order_seq_cst) != unchanged.word()) return at;
    if (is_gone) return last;
    if (side.alone[RingUser::turn_of(user)].load(std::memory_order_seq_cst) == at.value) return std::nullopt;
  }
}

/// Makes `next` the user of the side, which others use or nobody does. kLater: its user is in an operation.
MessageRing::Access MessageRing::change_user(RingSide& side, std::uint64_t next) {
  const std::uint64_t self = RingUser::self(memory_);
  for (;;) {
    std::uint64_t user = side.user.load(std::memory_order_seq_cst);
    if (user == RingUser::kEverybody) return Access::kShared;
    if ((user & ~RingUser::kTurns) == next) return Access::kSolo;
    RETINUE_CRASH_POINT();
    if (user == RingUser::kNobody) {
      if (!accept_heavy_barriers()) next = RingUser::kEverybody;
      side.user.compare_exchange_strong(user, next, std::memory_order_seq_cst);
      continue;
    }
    const std::uint64_t losing = user | RingUser::kLosing;
    if (user != losing && !side.user.compare_exchange_strong(user, losing, std::memory_order_seq_cst)) continue;
    const std::uint64_t loser = losing & ~RingUser::kLosing;
    RETINUE_CRASH_POINT();
    if ((loser & ~RingUser::kTurns) != self) heavy_barrier();
    const std::optional<RingPosition> at = settled_position(side, loser);
    if (!at) return Access::kLater;
    const std::size_t turn = RingUser::turn_of(loser) + 1;
    if (turn == RingSide::kMostUsers || !accept_heavy_barriers()) next = RingUser::kEverybody;
    // Once: whoever helps late finds that the next user is under way.
    std::uint64_t unset = 0;
    auto& start = next == RingUser::kEverybody ? side.hint : side.alone[turn];
    RETINUE_CRASH_POINT();
    start.compare_exchange_strong(unset, at->value, std::memory_order_seq_cst);
    RETINUE_CRASH_POINT();
    std::uint64_t expected = losing;
    const bool is_shared = next == RingUser::kEverybody;
    side.user.compare_exchange_strong(expected, is_shared ? next : next | turn << RingUser::kTurnShift,
                                      std::memory_order_seq_cst);
  }
}

MessageRing::Access MessageRing::gain_access(RingSide& side) {
  return change_user(side, RingUser::self(memory_));
}

bool MessageRing::share(RingSide& side) {
  return change_user(side, RingUser::kEverybody) == Access::kShared;
}

std::uint64_t MessageRing::count_over(const RingSide& side) const {
  const std::uint64_t user = side.user.load(std::memory_order_relaxed);
  const bool is_alone = user != RingUser::kNobody && user != RingUser::kEverybody;
  const RingPosition at{(is_alone ? side.alone[RingUser::turn_of(user) % RingSide::kMostUsers] : side.hint)
                            .load(std::memory_order_relaxed)};
  return at.lap() * capacity_ + at.index();
}

void MessageRing::see_solo_users(RingBell& bell) const {
  if (!has_words_ || &bell == &header_->done) return;
  const RingSide& side = &bell == &header_->not_full ? header_->get : header_->put;
  const std::uint64_t user = side.user.load(std::memory_order_seq_cst);
  if (user == RingUser::kNobody || user == RingUser::kEverybody) return;
  std::uint32_t before = bell.fences.load(std::memory_order_seq_cst);
  // Who rings looks at `fences` before `parked`. So if it finds that they have ended since, it finds `parked`, too.
  if (BellFences(before).are_made()) return;
  const BellFences asked = BellFences(before).asked_for_again();
  std::uint32_t word = asked.word();
  bell.fences.compare_exchange_strong(before, word, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  heavy_barrier();
  RETINUE_CRASH_POINT();
  bell.fences.compare_exchange_strong(word, asked.made().word(), std::memory_order_seq_cst);
}

}  // namespace retinue
