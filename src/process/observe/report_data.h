#pragma once

#include <nlohmann/json.hpp>

#include "process/observe/run_report.h"

namespace retinue {

/// What a report shows of a context: its ranks, with the calls that they kept.
nlohmann::json report_data_of(const JobMemory& memory, const EndedContext& context);

/// What it shows of the job.
nlohmann::json report_data_of(const JobMemory& memory);

}  // namespace retinue
