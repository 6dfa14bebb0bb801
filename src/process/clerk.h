#pragma once

#include <sys/types.h>

#include <functional>
#include <vector>

#include "ipc/crash_record.h"

namespace retinue {

/// Forks a clerk that turns the records' frames into text, calls `then`, and ends. It may die without harm: the records
/// then stay without text. Returns its pid, 0 if it could not be forked.
pid_t start_clerk(const std::vector<CrashRecord*>& records, const std::function<void()>& then);

}  // namespace retinue
