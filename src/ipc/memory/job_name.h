#pragma once

#include <string>

#include "ipc/memory/job_layout.h"

namespace retinue {

/// Names the job for people, who may say it to `retinue stop`; what is too long is cut.
void set_job_name(JobHeader& header, const std::string& name);
std::string job_name(const JobHeader& header);

}  // namespace retinue
