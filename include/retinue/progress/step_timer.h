#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "retinue/progress/summary_writer.h"

namespace retinue {

/// Where the time of steps went. `total` is exactly the sum of the four parts below it.
struct StepTimes {
  std::uint64_t steps = 0;
  std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds data{0};           ///< Loading data: until data_loaded().
  std::chrono::nanoseconds compute{0};        ///< All the rest.
  std::chrono::nanoseconds waiting{0};        ///< In calls of groups, until the last rank began the call.
  std::chrono::nanoseconds communication{0};  ///< In calls of groups, after that.
};

/// The steps of one rank.
struct RankStepTimes {
  int rank = 0;  ///< In the largest world that it joined.
  StepTimes times;
};

/// Splits the time of a loop's steps into data loading, compute, waiting for other ranks, and communication.
///
/// A collective that runs while the thread computes, as in DistributedDataParallel's backward, counts only as far as
/// the thread waits for it. A receive counts as waiting.
///
/// Waiting is known for ranks of this job and host that record their calls (RETINUE_FLIGHT_RECORDER isn't 0). Waiting
/// for other ranks counts as communication. Calls of NCCL, and backwards on a GPU's thread, count as compute.
///
/// Threads: one, which makes the timer, the steps and the calls of groups. One timer on a thread at a time. Any thread
/// may destroy it.
/// Cost: 50 ns for each call of a group. step() reads the calls of all ranks: 20 us with 10 calls in a step and 8
/// ranks, 90 us with 100 calls and 16 ranks. The ranks don't wait for each other.
class StepTimer {
 public:
  /// Begins the first step. Errors: UsageError if the thread has a timer.
  StepTimer();
  ~StepTimer();
  StepTimer(const StepTimer&) = delete;
  StepTimer& operator=(const StepTimer&) = delete;

  /// What came since the step began was data loading. Called first in the body of a loop over a data loader.
  void data_loaded();
  /// Ends the step and begins the next one. Returns the times of the step that ended.
  /// Errors: SharedMemoryExhausted, at the first step.
  StepTimes step();

  /// Returns the sum over all steps that ended.
  const StepTimes& sum() const noexcept;
  /// Returns the sums of all ranks that were started together with this one and that have a timer, by rank, as far as
  /// they have come. Without a job: of this one.
  std::vector<RankStepTimes> sums_of_ranks() const;

  /// Logs averages over the steps since the last call, in seconds: step_time/total, and so on, of this rank. With
  /// several ranks also, of all in sums_of_ranks(), step_time_min/total, step_time_mean/total, step_time_max/total and
  /// so on, and step_time/slowest_rank: the rank with the most compute and data loading. Call it on rank 0, now and
  /// then. Errors: as SummaryWriter's.
  void log(SummaryWriter& writer, std::int64_t global_step);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
