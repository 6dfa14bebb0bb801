#pragma once

#include "retinue/torch/data_loader.h"

namespace retinue {

/// Errors: UsageError for what is out of range, and for worker processes without a Runtime.
void check_options(const DataLoaderOptions& options);

}  // namespace retinue
