#pragma once

#include <optional>
#include <string>

namespace retinue {

struct StopOptions {
  std::string job;
  std::optional<double> timeout_seconds;  ///< None: what the ranks' own policies allow, and ten seconds.
};

/// `retinue stop`: asks the job's guardian to stop all ranks, and waits for their ends. Returns the exit code: 1 when
/// some are left after the timeout. Errors: Error.
int stop_command(const StopOptions& options);

}  // namespace retinue
