#pragma once

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "retinue/ipc/job_memory.h"

/// Processes that die at a point of sources that a test compiles once more with RETINUE_CRASH_POINTS.
namespace retinue {

inline long points_left = 0;  ///< 0: nobody is to die.
inline bool stops = false;    ///< It is to be stopped instead.

inline void crash_here() {
  if (points_left > 0 && --points_left == 0) kill(getpid(), stops ? SIGSTOP : SIGKILL);
}

struct Victim {
  std::uint32_t slot;
  pid_t pid;
};

/// `body` in a process with a slot of its own, which is killed at its point; 0: never.
inline Victim start_victim(JobMemory& memory, long point, const std::function<void()>& body) {
  const std::uint32_t slot = reserve_process_slots(memory, 1).front();
  memory.retain_holds_for(slot);
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // A test that was ended leaves nobody.
    enter_process_slot(memory, slot);
    points_left = point;
    body();
    points_left = 0;
    _exit(0);
  }
  return {slot, pid};
}

}  // namespace retinue
