#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "process/found_job.h"
#include "process/job_view.h"

namespace retinue {

struct ListedJob {
  FoundJob job;
  std::vector<RankView> ranks;
};

/// For people: a line per job, and below it a row per rank. `columns` bounds the rows' width; 0: nothing does.
std::string ps_text(const std::vector<ListedJob>& jobs, std::size_t columns);
/// For programs: docs/reference/cli.md names the keys.
std::string ps_json(const std::vector<ListedJob>& jobs);

}  // namespace retinue
