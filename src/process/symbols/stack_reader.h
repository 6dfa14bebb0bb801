#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace retinue {

/// Reads the stacks of running processes, with names, files and lines, and hands each process's text to `tell`, in
/// order; what cannot be read is said in it.
///
/// Works in child processes, which end with this one: whatever debug information does to them, and however long it
/// takes, the rest goes on, and the kernel lets go of what they held.
/// Blocking: at most `patience` for each process.
/// Errors: SystemError when no child can be made.
void read_stacks(const std::vector<pid_t>& pids, std::chrono::milliseconds patience,
                 const std::function<void(std::size_t index, const std::string& text)>& tell);

}  // namespace retinue
