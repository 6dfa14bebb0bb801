#pragma once

#include "ipc/memory/crash_record.h"

namespace retinue {

/// In a rank, on its main thread: from here on SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT and std::terminate write the
/// process's last words into `record` before they take their course: the handler that was found is called next, or the
/// process ends by the signal, so that its exit status stays true. Signals that are ignored stay so.
///
/// `record` must live as long as the process. A second call changes the record only.
void install_crash_handlers(CrashRecord& record);

/// Calls `function` when the record is complete and before the failure takes its course, perhaps several times and on
/// several threads; nullptr: no more. `function` must be async-signal-safe and come to an end.
void call_after_crash(void (*function)());

/// Lets a stack overflow of the calling thread be recorded; install_crash_handlers() does it for the main thread and
/// for those that start from then on. Undone when the thread ends. Errors: SystemError.
void use_signal_stack();

}  // namespace retinue
