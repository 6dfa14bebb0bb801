#pragma once

#include <chrono>
#include <optional>

namespace retinue {

/// After how long a wait for other ranks, or for workers, is reported: what RETINUE_LATE_AFTER_S says, or else 10 s. 0:
/// never. Errors: UsageError where that is no time.
std::chrono::nanoseconds default_late_after();

/// What an option says, or else that. The environment is only read where it is needed.
std::chrono::nanoseconds late_after_of(const std::optional<std::chrono::nanoseconds>& option);

}  // namespace retinue
