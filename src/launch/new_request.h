#pragma once

#include <cstddef>

#include "process/start_request.h"
#include "retinue/launch/options.h"

namespace retinue {

/// What `options` ask for, checked, with a RankRequest for each of `nprocs` ranks; what they run is the caller's to
/// add. `environments`: what each rank adds to its environment before what the options say, if any. Errors: UsageError.
StartRequest new_request(const StartOptions& options, StartKind kind, std::size_t nprocs,
                         const std::vector<std::map<std::string, std::string>>& environments = {});

}  // namespace retinue
