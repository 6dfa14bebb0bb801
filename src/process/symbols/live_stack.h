#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "retinue/base/deadline.h"

namespace retinue {

/// One thread of a running process, as it was for a moment.
struct ThreadStack {
  struct Frame {
    std::string path;      ///< Of the program or library; empty: of none.
    std::uint64_t offset;  ///< ELF virtual address in it, or else the address.
  };
  pid_t thread = 0;
  std::string name;
  std::vector<Frame> frames;  ///< Innermost first.
  std::string problem;        ///< Why there is no stack.
  bool is_held = false;       ///< It did not stop in time: when it does, it stays so until this process has ended.
};

/// The stacks of all threads of the process `pid`, by ptrace. Each thread is stopped for some milliseconds and goes on
/// as it was: stopped ones stay stopped, none is sent a signal. The kernel lets all go when this process dies
/// meanwhile. Blocking: until `deadline` for threads that do not stop (state D). Threads: needs a process of one
/// thread, whose SIGCHLD it blocks. Errors: SystemError when the process may not be looked at, with what forbids it, or
/// has ended.
std::vector<ThreadStack> capture_stacks(pid_t pid, Deadline deadline);

}  // namespace retinue
