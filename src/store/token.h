#pragma once

#include <string>

namespace retinue {

/// The job's secret, which members of a job know and nobody else.
struct Token {
  std::string secret;
  std::string source;  ///< Where it is from, as messages say it.
};

/// `option` if it isn't empty, else RETINUE_TOKEN, else the user's file, made if there is none.
/// Errors: UsageError, also for a file that others may read; SystemError.
Token job_token(const std::string& option);

/// $XDG_CONFIG_HOME/retinue/token, else ~/.config/retinue/token. Errors: UsageError without either variable.
std::string token_file();

}  // namespace retinue
