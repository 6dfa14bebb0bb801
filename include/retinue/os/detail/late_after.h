#pragma once

#include <chrono>

namespace retinue {

/// After how long a wait for other ranks, or for workers, is reported: what RETINUE_LATE_AFTER_S says, or else 10 s. 0:
/// never. Errors: UsageError where that is no time.
std::chrono::nanoseconds default_late_after();

}  // namespace retinue
