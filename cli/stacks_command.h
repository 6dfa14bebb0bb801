#pragma once

#include <string>

namespace retinue {

struct StacksOptions {
  std::string job;
  int rank = -1;     ///< -1: all.
  int context = -1;  ///< -1: all.
  double timeout_seconds = 10;
};

/// `retinue stacks`: prints the stack of every thread of every chosen rank, the native one and Python's. Returns the
/// exit code. Errors: Error.
int stacks_command(const StacksOptions& options);

}  // namespace retinue
