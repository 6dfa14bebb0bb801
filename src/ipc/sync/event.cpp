#include "retinue/ipc/event.h"

#include "ipc/sync/sync_layout.h"
#include "ipc/sync/sync_wait.h"
#include "os/testing/crash_point.h"

namespace retinue {
namespace {

bool is_odd(std::uint32_t changes) {
  return changes % 2 == 1;
}

/// False if it is so already.
bool change(EventState& state, bool to_set) {
  std::uint32_t changes = state.changes.load(std::memory_order_relaxed);
  do {
    if (is_odd(changes) == to_set) return false;
  } while (!state.changes.compare_exchange_weak(changes, changes + 1, std::memory_order_seq_cst));
  return true;
}

}  // namespace

Event::Event() : Event(nullptr) {
  if (is_to_be_made()) *this = create();
}

Event Event::create(const std::shared_ptr<JobMemory>& memory) {
  Event event(nullptr);
  event.block_ = make_sync_block(memory, SyncKind::kEvent, sizeof(EventState));
  return event;
}

EventState& Event::state() const {
  return sync_state<EventState>(block_, "Event");
}

void Event::set() {
  EventState& state = this->state();
  RETINUE_CRASH_POINT();
  change(state, true);
  RETINUE_CRASH_POINT();
  // Also where it was set: whoever set it may have been killed before this.
  if (state.bell.parked.load(std::memory_order_seq_cst) != 0) ring_all_parked(state.bell);
}

void Event::clear() {
  change(state(), false);
}

bool Event::is_set() const {
  return is_odd(state().changes.load(std::memory_order_acquire));
}

bool Event::wait(Time timeout) const {
  EventState& state = this->state();
  const std::shared_ptr<JobMemory> memory = block_.memory();
  const std::uint32_t before = state.changes.load(std::memory_order_acquire);
  const auto attempt = [&] {
    const std::uint32_t now = state.changes.load(std::memory_order_seq_cst);
    return is_odd(now) || now != before;
  };
  return wait_at_bell(*memory, state.bell, state.spin_budget, timeout, "waiting for an event", attempt);
}

}  // namespace retinue
