#include "process/guardian/guests.h"

#include <chrono>
#include <utility>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/poller.h"
#include "os/process/process_calls.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kMostGuests = 256;

}  // namespace

std::uint32_t Guests::admit(JobMemory& memory, FileDescriptor pidfd, pid_t pid) {
  // What the kernel says of the connection names a number, which may be another's by now; the descriptor stays true.
  if (!pidfd || pid <= 0 || pid_of(pidfd.get()) != pid || guests_.size() >= kMostGuests) return 0;
  try {
    const std::uint32_t slot = reserve_process_slots(memory, 1).front();
    ProcessSlot& own = process_slot(memory, slot);
    own.pid.store(pid, std::memory_order_relaxed);
    guests_.push_back({std::move(pidfd), slot});
    return slot;
  } catch (const SystemError&) {
    return 0;
  }
}

std::vector<int> Guests::fds() const {
  std::vector<int> fds;
  for (const Guest& guest : guests_)
    if (!guest.is_dead) fds.push_back(guest.pidfd.get());
  return fds;
}

bool Guests::reap(JobMemory& memory) {
  bool has_died = false;
  std::erase_if(guests_, [&](Guest& guest) {
    if (!guest.is_dead && !wait_for_exit(guest.pidfd.get(), std::chrono::milliseconds(0))) return false;
    has_died |= !std::exchange(guest.is_dead, true);
    process_slot(memory, guest.slot).state.store(ProcessState::kDead, std::memory_order_release);
    try {
      free_process_slot(memory, guest.slot);
      return true;
    } catch (const TimeoutError&) {
      return false;
    }
  });
  if (has_died) ring_all_pollers(memory);
  for (const Guest& guest : guests_)
    if (guest.is_dead) return false;
  return true;
}

}  // namespace retinue
