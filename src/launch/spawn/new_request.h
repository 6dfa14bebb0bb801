#pragma once

#include <cstddef>

#include "process/guardian/start_request.h"
#include "retinue/launch/options.h"

namespace retinue {

/// What `options` ask for, checked, with a RankRequest for each of `nprocs` ranks; what they run is the caller's to
/// add. `environments`: what each rank adds to its environment before what the options say, if any. Errors: UsageError.
StartRequest new_request(const StartOptions& options, StartKind kind, std::size_t nprocs,
                         const std::vector<std::map<std::string, std::string>>& environments = {});

/// Forks of the caller are where the caller is; all other ranks come from the guardian, which is where the program was
/// at its Runtime. `status`: of the calling thread. Errors: UsageError where those differ; SystemError without /proc.
void refuse_other_confinement(const ProcessStatus& status);

}  // namespace retinue
