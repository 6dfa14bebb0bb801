#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace retinue {

/// The fields of /proc/PID/stat that follow the process's name: the first one, its state, is field 3 in proc(5). Empty
/// for a process that is gone.
std::vector<std::string> process_stat(pid_t pid);

}  // namespace retinue
