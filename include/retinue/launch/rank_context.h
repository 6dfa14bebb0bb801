#pragma once

#include <chrono>
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

  /// Runs what the one who started this rank asks for by ProcessContext::call(), one call after the other. True: there
  /// will be no more, since that one said so by end_calls(), or let go of the ranks; false: `timeout` has passed.
  /// Errors: SystemError if the job's guardian was killed. What a called function throws is the caller's.
  bool serve_calls(std::chrono::nanoseconds timeout = std::chrono::nanoseconds::max());

  /// All ranks that were started together: what Communicator is made of.
  const JobGroup& world() const noexcept { return world_; }
  const std::shared_ptr<JobMemory>& memory() const noexcept { return world_.memory; }

 private:
  JobGroup world_;
  int rank_;
  int local_rank_;
};

}  // namespace retinue
