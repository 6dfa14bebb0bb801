#pragma once

#include <linux/capability.h>
#include <unistd.h>

#include "os/process/process_stat.h"

namespace retinue::test {

/// Root as it is outside of containers, which take capabilities away.
inline bool has_all_rights() {
  constexpr int kHexadecimal = 16;
  return geteuid() == 0 && (ProcessStatus().number("CapEff", kHexadecimal) >> CAP_SYS_ADMIN & 1) != 0;
}

}  // namespace retinue::test
