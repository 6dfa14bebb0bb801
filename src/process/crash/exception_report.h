#pragma once

#include <exception>

#include "ipc/memory/crash_record.h"

namespace retinue {

/// Inside a catch block of a rank: writes the exception with the stack of its throw into the rank's record, unless an
/// earlier crash is in it. An exception with nested ones is reported with the stack of the innermost throw, which is
/// where the failure began; `consequence` is set when PeerLost is among them.
void record_current_exception(CrashRecord& record) noexcept;

/// Of what is being handled, null where that is no C++ exception: fills type, message, consequence, time and frames;
/// kind and phase are the caller's. False when the throw is unknown: the frames are empty then.
bool describe_exception(const std::exception_ptr& exception, CrashRecord& record);

}  // namespace retinue
