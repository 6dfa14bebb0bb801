#pragma once

#include <string>
#include <vector>

#include "job_sampler.h"
#include "process/observe/found_job.h"

namespace retinue {

/// The size of a screen; 0: nothing bounds it.
struct TextSize {
  std::size_t columns = 0;
  std::size_t lines = 0;
};

/// For people: the job, who is late, and a row for each rank, as lines that fit.
std::vector<std::string> top_lines(const FoundJob& job, const JobSample& sample, const TextSize& size);
/// For programs: docs/reference/cli.md names the keys.
std::string top_json(const FoundJob& job, const JobSample& sample);

}  // namespace retinue
