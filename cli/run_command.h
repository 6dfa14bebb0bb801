#pragma once

#include <string>
#include <vector>

namespace retinue {

struct RunOptions {
  int nproc_per_node = 1;
  std::vector<std::string> command;  ///< The program and its arguments.
};

/// `retinue run`: starts the program's ranks with torchrun's environment, forwards signals, and waits for them.
/// Returns the exit code: 0, or that of the rank that failed first (128 + signal), or of the signal that ended it.
int run_command(const RunOptions& options);

}  // namespace retinue
