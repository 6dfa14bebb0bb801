#pragma once

#include <cstdint>
#include <memory>

#include "retinue/ipc/job_group.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// What a rank knows of itself and its world. Copies are cheap and mean the same rank.
class RankContext {
 public:
  RankContext(const std::shared_ptr<JobMemory>& memory, std::uint32_t process_slot);

  int rank() const noexcept { return rank_; }
  int local_rank() const noexcept { return local_rank_; }
  int world_size() const noexcept { return static_cast<int>(world_.process_slots.size()); }
  /// Ranks of this world on this host.
  int local_world_size() const noexcept { return world_size(); }

  /// Threads that this rank should use: what the one who started it asked for, else the CPUs that it was placed on,
  /// else the CPUs of all divided by the ranks of this host; at least 1.
  int cpus_per_rank() const;

  /// All ranks that were started together: what Communicator is made of.
  const JobGroup& world() const noexcept { return world_; }
  const std::shared_ptr<JobMemory>& memory() const noexcept { return world_.memory; }

 private:
  JobGroup world_;
  int rank_;
  int local_rank_;
};

}  // namespace retinue
