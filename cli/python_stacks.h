#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>

namespace retinue {

/// The Python functions that each thread of a process is in, as py-spy reads them: the program beside this command, or
/// on PATH. Empty for a process that is no Python interpreter; what cannot be read is said in the text.
/// Blocking: at most `patience`.
std::string python_stacks(pid_t pid, std::chrono::milliseconds patience);

}  // namespace retinue
