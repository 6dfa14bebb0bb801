#pragma once

#include <cstdint>
#include <optional>

#include "process/guardian/child_setup.h"

namespace retinue {

/// What the bootstrap variable says: which job an executed process belongs to, and as what.
struct Bootstrap {
  std::uint64_t job_id = 0;
  int memfd = -1;
  int control_fd = -1;
  std::uint32_t slot = 0;
  BootstrapRole role = BootstrapRole::kProgramRank;
  std::uint32_t context_id = 0;  ///< Of the rank: its slot may be another's by now.
  pid_t pid = 0;                 ///< Of a function's rank, or of a guardian. A program's rank: none.
  int control_receive_fd = -1;   ///< A guardian's only.
  int lifeline_fd = -1;          ///< A guardian's only.
};

/// Reads the variable and removes it from the environment, so that no other program inherits it. None: it is not
/// there, or was for the process that started this one. Errors: UsageError if it is garbled.
std::optional<Bootstrap> take_bootstrap();

}  // namespace retinue
