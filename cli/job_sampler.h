#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "process/observe/job_view.h"
#include "stragglers.h"

namespace retinue {

/// A rank as it is, and what it did since the look before.
struct RankSample {
  RankView view;
  double cpu_percent = 0;
  double steps_per_second = 0;
  double calls_per_second = 0;
  double bytes_per_second = 0;
};

struct JobSample {
  std::vector<RankSample> ranks;
  std::optional<Straggler> straggler;  ///< Of the last minute.
};

/// Looks at a job again and again. Commits no page of its memory.
///
/// Cost of a look: 50 us for each rank, and 200 ns for each of the calls that it made since, at most 1,000: of more the
/// newest stand for all.
class JobSampler {
 public:
  explicit JobSampler(std::shared_ptr<JobMemory> memory) : memory_(std::move(memory)) {}

  /// The first one knows no rates.
  JobSample next();

 private:
  /// What was known of the process in a slot.
  struct Known {
    pid_t pid = 0;
    std::uint64_t looked_ns = 0;
    std::chrono::nanoseconds cpu{0};
    std::uint64_t steps = 0;
    std::uint64_t total = 0;      ///< Calls.
    std::uint64_t next_call = 1;  ///< Those before have been read.
  };

  RankSample sample_of(RankView view);
  /// Reads what is new, and returns the mean of its calls' bytes.
  double read_calls(const RankView& view, Known& known);

  std::shared_ptr<JobMemory> memory_;
  std::map<std::uint32_t, Known> known_;  ///< By slot.
  Stragglers stragglers_;
};

}  // namespace retinue
