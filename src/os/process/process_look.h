#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "os/process/process_calls.h"

namespace retinue {

/// What keeps a process or thread from going on, as "is stopped (SIGSTOP or the like): kill -CONT 5 continues it";
/// empty if nothing does that can be seen from outside.
std::string standstill_of(pid_t pid);
/// The same as the end of a sentence about it: ", which is stopped ..."; empty as above.
std::string standstill_clause(pid_t pid);

/// The state of one thread; none when there is no such thread.
std::optional<char> state_of_thread(pid_t pid, pid_t thread);

/// Words of its command line, blanks between them, as they can be shown on any terminal.
std::string command_of(pid_t pid);

/// Which file the process executes; none where that may not be known.
std::optional<FileIdentity> executable_of(pid_t pid);

/// As "4711-83650", its pid and the moment of its start: no other process's of this boot and PID namespace. Empty where
/// there is none, or it has ended.
std::string identity_of_process(pid_t pid);

/// False also where that can't be known: of a process that this one may not look at, or without a descriptor for it.
bool has_process_ended(const std::string& identity);

/// `text` as it can be shown on any terminal: control characters become '?'.
std::string printable(std::string text);

}  // namespace retinue
