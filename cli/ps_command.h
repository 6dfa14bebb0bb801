#pragma once

namespace retinue {

struct PsOptions {
  bool all = false;   ///< Other users' jobs too; root only.
  bool json = false;  ///< For programs.
};

/// `retinue ps`. Returns the exit code: 1 when a job could not be looked at. Errors: UsageError.
int ps_command(const PsOptions& options);

}  // namespace retinue
