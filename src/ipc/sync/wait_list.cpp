#include "ipc/sync/wait_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "ipc/memory/ring_owner.h"
#include "os/sync/futex.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The half of a place's word that changes with its phase.
const std::atomic<std::uint32_t>& futex_of(const std::atomic<std::uint64_t>& place) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  return *reinterpret_cast<const std::atomic<std::uint32_t>*>(&place);
}

}  // namespace

/// Never more than there are, whatever stands there.
std::uint32_t WaitList::count_used() const {
  return std::min(state_.used.load(std::memory_order_acquire), WaitListState::kPlaces);
}

/// Places of the dead are used again only where nothing else is left: some are to be noticed first.
std::uint32_t WaitList::find_free() const {
  const std::uint32_t used = count_used();
  for (std::uint32_t i = 0; i < used; ++i)
    if (at(i).phase() == Phase::kFree) return i;
  if (used < WaitListState::kPlaces) return used;
  for (std::uint32_t i = 0; i < used; ++i)
    if (is_gone(at(i))) return i;
  return WaitListState::kPlaces;
}

std::uint32_t WaitList::enter(const char* waiting) {
  const std::uint32_t index = find_free();
  if (index == WaitListState::kPlaces)
    throw SystemError(fmt::format("{}: {} threads wait already, which is the maximum", waiting, index), EAGAIN);
  const WaitPlace mine(own_owner(memory_), state_.next_ticket++, Phase::kWaiting);
  RETINUE_CRASH_POINT();
  state_.places[index].store(mine.word(), std::memory_order_release);
  RETINUE_CRASH_POINT();
  if (index >= state_.used.load(std::memory_order_relaxed)) state_.used.store(index + 1, std::memory_order_release);
  return index;
}

void WaitList::leave(std::uint32_t index, WaitPlace mine) {
  WaitPlace now = at(index);
  while (now.is_same_as(mine) && now.phase() != Phase::kFree && !change(index, now, Phase::kFree)) now = at(index);
}

void WaitList::forsake(std::uint32_t index, WaitPlace mine) {
  constexpr std::uint32_t kOtherIncarnation = 1u << kOwnerSlotBits;  // Than the one that has the slot.
  const WaitPlace gone(mine.owner() ^ kOtherIncarnation, mine.ticket(), Phase::kWaiting);
  std::uint64_t expected = mine.word();
  if (!state_.places[index].compare_exchange_strong(expected, gone.word(), std::memory_order_acq_rel))
    leave(index, mine);
}

void WaitList::sleep(std::uint32_t index, WaitPlace mine, std::chrono::nanoseconds longest) const {
  futex_wait(futex_of(state_.places[index]), static_cast<std::uint32_t>(mine.word()), longest);
}

bool WaitList::change(std::uint32_t index, WaitPlace from, Phase to) {
  std::uint64_t expected = from.word();
  if (!state_.places[index].compare_exchange_strong(expected, from.with(to).word(), std::memory_order_acq_rel))
    return false;
  RETINUE_CRASH_POINT();
  if (from.phase() == Phase::kWaiting) futex_wake_all(futex_of(state_.places[index]));
  return true;
}

bool WaitList::wake_oldest() {
  for (;;) {
    const std::uint32_t used = count_used();
    std::uint32_t oldest = used;
    WaitPlace its_place;
    for (std::uint32_t i = 0; i < used; ++i) {
      const WaitPlace place = at(i);
      if (place.phase() != Phase::kWaiting || (oldest != used && its_place.is_before(place))) continue;
      oldest = i;
      its_place = place;
    }
    if (oldest == used) return false;
    if (is_gone(its_place)) {
      change(oldest, its_place, Phase::kFree);
    } else if (change(oldest, its_place, Phase::kWoken)) {
      return true;
    }
  }
}

void WaitList::wake_all(Phase phase) {
  const std::uint32_t used = count_used();
  for (std::uint32_t i = 0; i < used; ++i) {
    const WaitPlace place = at(i);
    if (place.phase() == Phase::kWaiting) change(i, place, phase);
  }
}

/// The wake-up is this process's while it passes it on. If it is killed in the middle, one more is woken than was
/// meant, but never one less.
void WaitList::pass_on_wakeups_of_the_dead() {
  const std::uint32_t used = count_used();
  for (std::uint32_t i = 0; i < used; ++i) {
    const WaitPlace place = at(i);
    if ((place.phase() != Phase::kWoken && place.phase() != Phase::kSpecial) || !is_gone(place)) continue;
    std::uint64_t expected = place.word();
    const WaitPlace passing(own_owner(memory_), place.ticket(), Phase::kSpecial);
    if (!state_.places[i].compare_exchange_strong(expected, passing.word(), std::memory_order_acq_rel)) continue;
    RETINUE_CRASH_POINT();
    wake_oldest();
    RETINUE_CRASH_POINT();
    change(i, passing, Phase::kFree);
  }
}

std::uint32_t WaitList::count_waiting() const {
  std::uint32_t count = 0;
  const std::uint32_t used = count_used();
  for (std::uint32_t i = 0; i < used; ++i) count += at(i).phase() == Phase::kWaiting ? 1 : 0;
  return count;
}

bool WaitList::has_dead_waiter() const {
  const std::uint32_t used = count_used();
  for (std::uint32_t i = 0; i < used; ++i) {
    const WaitPlace place = at(i);
    if (place.phase() == Phase::kWaiting && is_gone(place)) return true;
  }
  return false;
}

bool WaitList::is_gone(WaitPlace place) const {
  return owner_is_gone(memory_, place.owner());
}

}  // namespace retinue
