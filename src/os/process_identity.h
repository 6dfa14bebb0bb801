#pragma once

#include <sys/types.h>

#include <string>

namespace retinue {

/// As "4711-83650", its pid and the moment of its start: no other process's of this boot and PID namespace. Empty where
/// there is none, or it has ended.
std::string identity_of_process(pid_t pid);

}  // namespace retinue
