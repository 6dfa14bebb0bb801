#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>

namespace retinue {

/// What a process and those of its children that it waited for used; zeros where it is unknown.
struct ProcessUse {
  std::uint64_t user_cpu_ns;
  std::uint64_t system_cpu_ns;
  std::uint64_t peak_memory_bytes;  ///< Largest resident size, job memory that it touched included.
};

/// As wait4() gives it.
ProcessUse use_of(const rusage& usage);

/// Of a process that has ended and that only somebody else may wait for. The kernel still tells its CPU time, to the
/// tick; its memory is gone.
ProcessUse use_of_zombie(pid_t pid);

}  // namespace retinue
