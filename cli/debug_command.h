#pragma once

#include <string>

namespace retinue {

struct DebugOptions {
  std::string job;
  int rank = -1;
  int context = -1;  ///< -1: the only one that has the rank.
};

/// `retinue debug`: becomes a gdb that is attached to the rank; the job's deadlines pause until gdb has left. Returns
/// only by an error. Errors: Error; SystemError when there is no gdb.
int debug_command(const DebugOptions& options);

}  // namespace retinue
