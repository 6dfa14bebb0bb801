#pragma once

#include <sys/types.h>

#include <string>

namespace retinue {

/// As "4711-83650", its pid and the moment of its start: no other process's of this boot and PID namespace. Empty where
/// there is none, or it has ended.
std::string identity_of_process(pid_t pid);

/// False also where that can't be known: of a process that this one may not look at, or without a descriptor for it.
bool has_process_ended(const std::string& identity);

}  // namespace retinue
