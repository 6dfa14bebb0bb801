// The end of a program that has a Runtime: of the job's own, and of one that is a rank.
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bitset>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "ipc/memory/context_table.h"
#include "ipc/memory/job_clock.h"
#include "launch/runtime/program_failure.h"
#include "launch/runtime/runtime_impl.h"
#include "os/process/process_calls.h"
#include "os/process/process_look.h"
#include "os/sockets/control_socket.h"
#include "os/sync/futex.h"
#include "os/testing/fault_point.h"
#include "process/guardian/unretrieved_failure.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

constexpr auto kGuardianEnd = std::chrono::seconds(60);  // Beyond what grace and stop policies allow.
constexpr std::chrono::milliseconds kQuietEnd = std::chrono::seconds(3);

/// glibc goes on with the handlers that are left, and the other code.
void fail_exit(int status, void* given) {
  const JobMemory& memory = *static_cast<JobMemory*>(given);
  const JobHeader& header = memory.header();
  const std::uint32_t own = memory.own_slot();
  const ProcessSlot& slot = process_slot(memory, own);
  if (slot.pid.load(std::memory_order_relaxed) != getpid()) return;
  // Those of a program that calls exit() beside a Runtime: the guardian tells the others at that one's end.
  report_unretrieved_failures(memory, std::bitset<kMaxProcesses>().set(own), kQuietEnd);
  // What ranks had started and lost is the whole job's failure.
  const auto& failures = own == kProgramSlot ? header.unretrieved_failures : slot.unretrieved_failures;
  if (status == 0 && failures.load(std::memory_order_acquire) != 0) std::exit(1);
}

}  // namespace

void fail_exit_after_unretrieved_failures(JobMemory* memory) {
  on_exit(fail_exit, memory);
}

Runtime::Impl::~Impl() {
  stop_reporting_own_failure();
  if (is_rank && memory) {
    const ProcessSlot& own = process_slot(*memory, memory->own_slot());
    if (own.pid.load(std::memory_order_relaxed) == getpid()) end_own_starts();
    fault_point("rank.finish", own.rank);
  }
  if (guardian > 0 && owner == getpid()) shut_down_guardian();
}

namespace {

/// Time does not count while a rank is debugged.
bool wait_for_exit_by_job_clock(int pidfd, const JobHeader& header, std::chrono::milliseconds patience) {
  const JobDeadline deadline = JobDeadline::after(header, patience);
  do {
    const auto left = deadline.left(std::chrono::seconds(1));
    if (wait_for_exit(pidfd, std::chrono::ceil<std::chrono::milliseconds>(left))) return true;
  } while (!deadline.passed());
  return false;
}

}  // namespace

/// The end of a program is not where one looks for running ranks.
void Runtime::Impl::print_running() const {
  int running = 0;
  std::string standing;
  for (std::uint32_t index = kGuardianSlot + 1; index < kMaxProcesses; ++index) {
    const ProcessSlot& slot = process_slot(*memory, index);
    const ProcessState state = slot.state.load(std::memory_order_acquire);
    if (state != ProcessState::kStarted && state != ProcessState::kRunning && state != ProcessState::kFinished)
      continue;
    if (is_guest_slot(*memory, index) || (is_rank && slot.parent != memory->own_slot())) continue;
    ++running;
    const pid_t pid = slot.pid.load(std::memory_order_relaxed);
    if (const std::string why = standstill_of(pid); !why.empty())
      standing += fmt::format("retinue: rank {} (pid {}) {}\n", slot.rank, pid, why);
  }
  if (running == 0) {
    write_standard_error("retinue: the program ends after the last output of its ranks is shown\n");
  } else {
    write_standard_error(
        fmt::format("retinue: the program ends, but {} of its ranks are still running; they are stopped after their "
                    "exit_grace (join them, or start them with daemon = true)\n{}",
                    running, standing));
  }
}

/// Says what it waits for when that takes longer.
bool Runtime::Impl::wait_for_ranks(std::chrono::milliseconds patience) const {
  if (wait_for_exit(guardian_pidfd.get(), std::min(patience, kQuietEnd))) return true;
  print_running();
  return wait_for_exit_by_job_clock(guardian_pidfd.get(), memory->header(), patience - std::min(patience, kQuietEnd));
}

void Runtime::Impl::shut_down_guardian() noexcept {
  fault_point("program.shutdown");
  try {
    const bool fails = std::uncaught_exceptions() > exceptions;
    const ControlMessage message{ControlKind::kShutdown, ~0u, fails ? kAtOnce : kAllRanks, 0};
    send_message(control_send.get(), &message, sizeof message);
  } catch (const std::exception&) {
    // It is gone already; the wait below sees it.
  }
  const auto stop_time = std::chrono::milliseconds(memory->header().longest_stop_ms.load(std::memory_order_relaxed));
  if (!wait_for_ranks(stop_time + kGuardianEnd) && kill(guardian, SIGKILL) != 0) {
    std::fprintf(
        stderr, "retinue: the job's guardian (pid %d) does not end, and this process is not permitted to kill it: %s\n",
        guardian, strerrordesc_np(errno));
    return;
  }
  int status = 0;
  while (waitpid(guardian, &status, __WALL) < 0 && errno == EINTR) continue;
  if (memory->header().swept.load(std::memory_order_acquire) != 0) return;
  try {
    sweep();
  } catch (const std::exception& error) {
    write_standard_error(fmt::format(
        "retinue: the job's guardian was killed, and the search for orphaned processes failed: {}\n", error.what()));
  }
}

namespace {

/// Whether the start `id` of the process in `parent` still runs, or is still to be freed by the guardian.
bool is_unfinished(const ContextRecord& record, std::uint32_t parent, std::uint32_t id) {
  const std::uint32_t state = record.state.load(std::memory_order_acquire);
  if (state == ContextRecord::kFree || record.parent_slot != parent || record.id != id) return false;
  // What its owner let go of is told and freed by the guardian.
  return state != ContextRecord::kEnded || record.abandoned.load(std::memory_order_acquire) != 0;
}

}  // namespace

/// A rank's program gives what it started the time that the job's own program gives.
void Runtime::Impl::end_own_starts() noexcept {
  constexpr auto kLookAtGuardian = std::chrono::milliseconds(100);
  const JobHeader& header = memory->header();
  const LifeLock& guardian_life = process_slot(*memory, kGuardianSlot).life;
  const std::uint32_t own = memory->own_slot();
  const std::uint32_t end = header.context_end.load(std::memory_order_acquire);
  const auto ask_for_end = [&](std::uint32_t how) {
    for (std::uint32_t index = 0; index < end; ++index) {
      const ContextRecord& record = context_record(*memory, index);
      if (!is_unfinished(record, own, record.id)) continue;
      const ControlMessage message{ControlKind::kFinish, index, how, 0};
      send_message(control_send.get(), &message, sizeof message);
    }
  };
  // Who is being stopped has no time to give.
  const std::atomic<std::int32_t>& stop_signal = process_slot(*memory, own).stop_signal;
  bool is_hurried = std::uncaught_exceptions() > exceptions || stop_signal.load() != 0;
  try {
    ask_for_end(is_hurried ? kAtOnce : kAllRanks);
    const std::chrono::milliseconds longest(header.longest_stop_ms.load(std::memory_order_relaxed));
    const JobDeadline quiet = JobDeadline::after(header, kQuietEnd);
    const JobDeadline deadline = JobDeadline::after(header, longest + kGuardianEnd);
    bool was_said = false;
    for (std::uint32_t index = 0; index < end; ++index) {
      const ContextRecord& record = context_record(*memory, index);
      for (const std::uint32_t id = record.id;;) {
        const std::uint32_t seen = record.changed.load(std::memory_order_acquire);
        if (!is_unfinished(record, own, id)) break;
        if (deadline.passed() || guardian_life.owner_died()) return;
        if (!is_hurried && stop_signal.load() != 0) {
          is_hurried = true;
          ask_for_end(kAtOnce);
        }
        if (!was_said && quiet.passed()) {
          was_said = true;
          print_running();
        }
        futex_wait(record.changed, seen, deadline.left(kLookAtGuardian));
      }
    }
  } catch (const std::exception&) {
    // The guardian is gone, and its ranks with it; or the program has closed its descriptors.
  }
}

}  // namespace retinue
