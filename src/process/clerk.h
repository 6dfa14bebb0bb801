#pragma once

#include <sys/types.h>

#include <vector>

#include "ipc/crash_record.h"

namespace retinue {

/// Forks a clerk that turns the records' frames into text, one after the other, and ends. It may die without harm:
/// stack_phase of the record that it was at is 1 then, and of those that it did not come to 0. Returns its pid, 0 if it
/// could not be forked.
pid_t start_clerk(const std::vector<CrashRecord*>& records);

}  // namespace retinue
