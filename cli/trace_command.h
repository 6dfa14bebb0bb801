#pragma once

#include <string>

namespace retinue {

struct TraceOptions {
  std::string job;
  std::string format = "chrome";  ///< Or "pytorch".
  std::string out;   ///< A file, or with "pytorch" a folder; "-": standard output. Empty: by the job's name.
  int context = -1;  ///< -1: all.
};

/// `retinue trace`: writes what the job's processes recorded of their calls. Returns the exit code. Errors: Error.
int trace_command(const TraceOptions& options);

}  // namespace retinue
