#pragma once

#include <span>

#include "progress/event.h"

namespace retinue {

/// Counts the values in TensorFlow's buckets, whose limits grow by a tenth each, as PyTorch's add_histogram() does by
/// default. Values that are NaN or infinite are left out; without others the count is 0.
Histogram histogram_of(std::span<const double> values);

}  // namespace retinue
