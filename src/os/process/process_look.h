#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "os/process/process_calls.h"

namespace retinue {

/// What the kernel tells of a process that runs now, to anybody who may look.
struct ProcessLook {
  char state = '?';                 ///< As ps has it: R, S, D, T (stopped), t (held by a debugger), Z, ...
  bool has_executed = false;        ///< False: it is still the image that it was forked from.
  std::chrono::nanoseconds cpu{0};  ///< All its threads', user and system, to the tick.
  std::uint64_t resident_bytes = 0;
  std::string command;  ///< Words of its command line, blanks between them, without control characters.
};

/// None when there is no such process.
std::optional<ProcessLook> look_at_process(pid_t pid);

/// What keeps a process or thread from going on, as "is stopped (SIGSTOP or the like): kill -CONT 5 continues it";
/// empty if nothing does that can be seen from outside.
std::string standstill_of(pid_t pid);
/// The same as the end of a sentence about it: ", which is stopped ..."; empty as above.
std::string standstill_clause(pid_t pid);

/// The state of one thread; none when there is no such thread.
std::optional<char> state_of_thread(pid_t pid, pid_t thread);

/// Which file the process executes; none where that may not be known.
std::optional<FileIdentity> executable_of(pid_t pid);

/// `text` as it can be shown on any terminal: control characters become '?'.
std::string printable(std::string text);

}  // namespace retinue
