#pragma once

#include <sys/types.h>

#include <string>

namespace retinue {

struct ProcessSlot;

/// How the process of `slot` ended, or why it is in the group no more, as "finished normally", "exited with code 3" or
/// "died (signal 9, SIGKILL)". Blocking: where that is not known yet, until the process has run for some milliseconds
/// more, at most 1 s.
/// `has_left`: it had left its group before.
std::string end_of_process(const ProcessSlot& slot, bool has_left = false);

}  // namespace retinue
