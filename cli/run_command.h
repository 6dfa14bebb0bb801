#pragma once

#include "run_options.h"

namespace retinue {

/// `retinue run`: starts the job's ranks with torchrun's environment, forwards signals, starts all again after a
/// failure as often as asked, and waits for them. Returns the exit code: 0, or that of the rank that failed first (128
/// + signal), or 128 + the signal that ended it.
int run_command(const RunOptions& options);

}  // namespace retinue
