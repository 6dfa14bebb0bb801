#pragma once

#include <cstdlib>
#include <string>

#include "cli/shell_run.h"
#include "support/paths.h"

namespace retinue::test {

/// PyTorch's analyser of flight recorder dumps, where there is one.
class Torchfrtrace {
 public:
  Torchfrtrace() {
    const char* given = std::getenv("RETINUE_PEER_PYTHON");
    python_ = given != nullptr ? given : RETINUE_TORCH_PYTHON;
    if (python_.empty()) python_ = "python3";
  }

  /// Empty, or why there is none.
  std::string problem() const {
    const std::string look = "'" + python_ + "' -c 'import torch.distributed.flight_recorder.fr_trace'";
    if (shell_run(look).status == 0) return "";
    return python_ + " has no PyTorch with a flight recorder's analyser: set RETINUE_PEER_PYTHON to one that has";
  }
  /// What it says of a folder.
  std::string verdict_on(const std::string& folder) const {
    return shell_run("'" + python_ + "' " RETINUE_SOURCE_DIR "/tests/cli/torchfrtrace_verdict.py '" + folder + "'")
        .output;
  }

 private:
  std::string python_;
};

}  // namespace retinue::test
