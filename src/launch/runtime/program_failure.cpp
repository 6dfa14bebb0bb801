#include "launch/runtime/program_failure.h"

#include <sys/socket.h>

#include <atomic>
#include <chrono>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "os/files/environment.h"
#include "os/sync/clock.h"
#include "os/sync/futex.h"
#include "process/crash/crash_handler.h"
#include "process/crash/throw_trace.h"
#include "process/failure/error_file.h"
#include "process/guardian/start_request.h"

namespace retinue {
namespace {

// Symbols of LibTorch take 0.3 s. Whoever waits for the program should not wait much longer for its end.
constexpr std::chrono::seconds kReportPatience{10};

const ProcessSlot* program_slot = nullptr;
const ProcessSlot* guardian_slot = nullptr;
int guardian_socket = -1;

// >>> async-signal-safe

void await_report() {
  const auto& reported = program_slot->crash.reported;
  if (reported.load(std::memory_order_acquire) != 0) return;
  const ControlMessage message{ControlKind::kProgramFailed, ~0u, 0, 0};
  if (send(guardian_socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
  const std::uint64_t begin = monotonic_ns();
  while (reported.load(std::memory_order_acquire) == 0) {  // Pairs with ProgramReport::on_exit().
    const std::chrono::nanoseconds passed(monotonic_ns() - begin);
    const FutexWait guardian = guardian_slot->life.watch();
    if ((guardian.expected & LifeLock::kOwnerDied) != 0 || passed >= kReportPatience) return;
    const FutexWait waits[] = {{&reported, 0}, guardian};
    futex_wait_any(waits, kReportPatience - passed);
  }
}

// <<< async-signal-safe

}  // namespace

void report_own_failure(const JobMemory& memory, int control_send_fd) {
  if (!find_variable(kErrorFileVariable)) return;
  program_slot = &process_slot(memory, kProgramSlot);
  guardian_slot = &process_slot(memory, kGuardianSlot);
  guardian_socket = control_send_fd;
  install_crash_handlers(process_slot(memory, kProgramSlot).crash);
  enable_throw_trace();
  call_after_crash(&await_report);
}

void stop_reporting_own_failure() {
  call_after_crash(nullptr);
}

}  // namespace retinue
