#pragma once

#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "retinue/torch/process_group.h"

namespace retinue {

/// Errors: UsageError for a backend or init method that isn't there.
void check_options(const ProcessGroupOptions& options);

/// The group of a call. Errors: UsageError where it is null.
c10d::ProcessGroup& checked_group(std::string_view call, const ProcessGroup& group);

/// c10d's group around a backend for CPU tensors.
ProcessGroup make_group(c10::intrusive_ptr<c10d::Backend> backend, const std::string& name);

}  // namespace retinue
