#pragma once

#include <string>
#include <vector>

#include "rank_plan.h"
#include "run_options.h"

namespace retinue {

/// What `retinue run` would start, rank by rank: a command line that a shell takes, and where its output goes.
std::string dry_run_text(const RunOptions& options, const std::vector<PlannedRank>& plan, const Devices& devices);

}  // namespace retinue
