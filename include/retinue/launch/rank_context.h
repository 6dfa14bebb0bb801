#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "retinue/ipc/job_group.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// What a rank knows of itself and its world. Copies are cheap and refer to the same rank.
class RankContext {
 public:
  RankContext(const std::shared_ptr<JobMemory>& memory, std::uint32_t process_slot);

  int rank() const noexcept { return rank_; }
  int local_rank() const noexcept { return local_rank_; }
  int world_size() const noexcept { return static_cast<int>(world_.process_slots.size()); }
  /// Returns the number of this world's ranks on this host.
  int local_world_size() const noexcept { return world_size(); }

  /// Returns the number of threads that this rank should use: the number its starter asked for, else the number of CPUs
  /// that it was placed on, else the number of all CPUs divided by the ranks of this host; at least 1.
  int cpus_per_rank() const;

  /// Runs the calls that the starter of this rank makes by ProcessContext::call(), one after the other. Returns true if
  /// there will be no more, because the starter called end_calls() or destroyed its ProcessContext, and false if
  /// `timeout` has passed.
  /// Errors: SystemError if the job's guardian was killed. The caller gets exceptions that a called function throws.
  bool serve_calls(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

  /// Returns the group of all ranks that were started together. A Communicator is made of it.
  const JobGroup& world() const noexcept { return world_; }
  const std::shared_ptr<JobMemory>& memory() const noexcept { return world_.memory; }

 private:
  JobGroup world_;
  int rank_;
  int local_rank_;
};

}  // namespace retinue
