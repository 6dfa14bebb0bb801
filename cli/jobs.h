#pragma once

#include <string>
#include <vector>

#include "process/observe/found_job.h"
#include "process/observe/job_view.h"

namespace retinue {

/// The one running job that `text` means: its name, id or program's pid, or else the beginning of a name or id that no
/// other job's begins with. Root may name other users' jobs too.
/// Errors: Error when there is none or several, with those that there are, and when it cannot be looked at.
FoundJob choose_job(const std::string& text);

/// Which of a job's ranks a command is about; -1: all.
struct RankChoice {
  int rank = -1;
  int context = -1;
};

/// Those of `ranks` that are alive and chosen. Errors: Error when there is none.
std::vector<RankView> choose_ranks(const FoundJob& job, const std::vector<RankView>& ranks, const RankChoice& choice);

}  // namespace retinue
