#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The members of a group: all that a communicator needs to know of the processes that it connects.
struct JobGroup {
  std::shared_ptr<JobMemory> memory = {};
  /// The same on all members and unique in the job, as "context 3/world".
  std::string name = {};
  /// This process's index in `process_slots`.
  int rank = 0;
  /// The members' slots in the job's process table, in rank order.
  std::vector<std::uint32_t> process_slots = {};
};

}  // namespace retinue
