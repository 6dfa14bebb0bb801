#pragma once

#include <string>

namespace retinue {

struct TopOptions {
  std::string job;
  double interval_seconds = 1;
  bool once = false;  ///< One look, an interval long, as plain lines.
  bool json = false;  ///< The same for programs.
};

/// `retinue top`: shows what the job's ranks do until somebody leaves it or the job ends. Returns the exit code.
/// Errors: Error.
int top_command(const TopOptions& options);

}  // namespace retinue
