#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process/observe/found_job.h"
#include "process/observe/job_view.h"

namespace retinue {

struct ListedJob {
  FoundJob job;
  std::vector<RankView> ranks;
};

inline double seconds_of(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double>(duration).count();
}
/// The line of a job, without its end.
std::string job_heading(const FoundJob& job);
/// "running", or how it ended, or "-" and the like where nothing is known.
std::string state_of(const RankView& rank);
std::string memory_text(std::uint64_t bytes);
/// "all_reduce 12.3 s": the call that it is in, and for how long; "-": none.
std::string call_text(const RankView& rank);

nlohmann::ordered_json rank_json(const RankView& rank);

/// For people: a line per job, and below it a row per rank. `columns` bounds the rows' width; 0: nothing does.
std::string ps_text(const std::vector<ListedJob>& jobs, std::size_t columns);
/// For programs: docs/reference/cli.md names the keys.
std::string ps_json(const std::vector<ListedJob>& jobs);

}  // namespace retinue
