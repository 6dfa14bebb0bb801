#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/char_field.h"
#include "os/process/signal_names.h"
#include "process/failure/failure_text.h"
#include "process/symbols/symbolizer.h"

namespace retinue {
namespace {

/// A crash that the crashing rank could not finish to write down still has what comes first in the record.
bool has_crash(const CrashRecord& crash) {
  const std::uint32_t phase = crash.phase.load(std::memory_order_acquire);  // Pairs with complete_crash_record().
  return phase == 2 || (phase == 1 && crash.kind == CrashKind::kSignal);
}

void add_exception(const CrashRecord& crash, RankOutcome& outcome) {
  outcome.type = text_of(crash.type);
  outcome.message = text_of(crash.message);
  outcome.consequence = crash.consequence != 0;
}

void add_signal(const CrashRecord& crash, RankOutcome& outcome) {
  outcome.signal = crash.signal;
  const std::string detail = text_of(crash.message);
  outcome.message = crash.fault_address != 0 || detail.empty() ? fault_description(crash.signal, crash.fault_address)
                                                               : signal_description(crash.signal);
  if (!detail.empty()) outcome.message += ", " + detail;
}

void add_crash(const CrashRecord& crash, RankOutcome& outcome) {
  if (crash.kind == CrashKind::kSignal) {
    add_signal(crash, outcome);
  } else {
    add_exception(crash, outcome);
  }
  const bool has_names = crash.stack_phase.load(std::memory_order_acquire) == 2;
  outcome.stack = has_names ? text_of(crash.stack) : stack_without_names(crash);
}

bool is_from_error_file(const CrashRecord& crash) {
  return crash.kind == CrashKind::kErrorFile || crash.kind == CrashKind::kBadErrorFile;
}

/// Whether the record is about the end that wait() reported: a crash that a handler of the program survived is not.
bool explains(const CrashRecord& crash, int status) {
  if (crash.kind == CrashKind::kException) return true;
  if (is_from_error_file(crash)) return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (WIFSIGNALED(status)) return WTERMSIG(status) == crash.signal;
  return WEXITSTATUS(status) != 0;  // A sanitizer's handler reports the crash and exits.
}

RankEnd end_of_dead(const ProcessSlot& slot, int status, bool has_own_crash) {
  if (has_own_crash && slot.crash.kind == CrashKind::kException) return RankEnd::kRaised;
  const bool is_clean = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (is_clean) return RankEnd::kReturned;
  const bool is_reported = has_own_crash && slot.crash.kind == CrashKind::kErrorFile;
  if (is_reported && WIFEXITED(status)) return RankEnd::kRaised;
  const int stop_signal = slot.stop_signal.load(std::memory_order_acquire);
  // A SIGKILL that the stop sequence had not come to yet was somebody else's.
  const bool is_others_kill = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && stop_signal != SIGKILL;
  const bool is_stopped = stop_signal != 0 && !is_others_kill;
  if (is_stopped && is_reported) return RankEnd::kRaised;  // It had failed already, or failed of being stopped.
  if (is_stopped && !(has_own_crash && !is_from_error_file(slot.crash))) return RankEnd::kStopped;
  return WIFSIGNALED(status) ? RankEnd::kSignaled : RankEnd::kExited;
}

std::string error_file_head(const CrashRecord& crash) {
  if (crash.kind == CrashKind::kBadErrorFile) return text_of(crash.message);
  return fmt::format("its error file: {}{}{}", text_of(crash.type), crash.type[0] == '\0' ? "" : ": ",
                     text_of(crash.message));
}

std::string memory_kill_description(const ProcessSlot& slot) {
  constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
  const std::string full = slot.full_cgroup_limit_bytes == 0
                               ? "the machine was full"
                               : fmt::format("cgroup limit {} MiB", slot.full_cgroup_limit_bytes / kMebibyte);
  if (slot.use.peak_memory_bytes == 0) return fmt::format("out of memory ({})", full);
  return fmt::format("out of memory ({}, this rank's peak {} MiB)", full, slot.use.peak_memory_bytes / kMebibyte);
}

std::string abandonment_description(char state) {
  const char* meaning = state == 'D' ? ": uninterruptible sleep in the kernel; see dmesg" : "";
  return fmt::format("SIGKILL did not end it in time (state {}{})", state, meaning);
}

constexpr const char* kStatusTaken =
    "its exit code or signal is not known: other code of the program that forked it waits for any child, for "
    "example with waitpid(-1), and took the status";

void describe_signal(const ProcessSlot& slot, RankOutcome& outcome) {
  outcome.out_of_memory = outcome.signal == SIGKILL && slot.killed_for_memory == 1;
  if (outcome.out_of_memory) {
    outcome.message = memory_kill_description(slot);
    return;
  }
  outcome.message = signal_description(outcome.signal);
  if (outcome.signal == SIGKILL) {
    outcome.message +=
        ", but not by the job: another process killed it, or the kernel did because memory ran out (see dmesg)";
  }
}

/// Whatever stands there: some years at most, so that sums of them are numbers.
std::chrono::nanoseconds span_of(std::uint64_t ns) {
  return std::chrono::nanoseconds(std::min(ns, std::uint64_t{1} << 60));
}

void add_use(const ProcessSlot& slot, RankOutcome& outcome) {
  outcome.use.user_cpu = span_of(slot.use.user_cpu_ns);
  outcome.use.system_cpu = span_of(slot.use.system_cpu_ns);
  outcome.use.peak_memory_bytes = slot.use.peak_memory_bytes;
  const std::uint64_t started = slot.started_ns.load(std::memory_order_relaxed);
  const std::uint64_t ended = slot.ended_ns.load(std::memory_order_acquire);
  if (started != 0 && ended > started) outcome.use.lifetime = span_of(ended - started);
}

void add_end(const ProcessSlot& slot, RankOutcome& outcome) {
  const int status = slot.exit_status.load(std::memory_order_acquire);
  const bool has_own_crash = has_crash(slot.crash) && explains(slot.crash, status);
  outcome.end = end_of_dead(slot, status, has_own_crash);
  outcome.ended = std::chrono::nanoseconds(slot.ended_ns.load(std::memory_order_acquire));
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) {
    outcome.signal = WTERMSIG(status);
    outcome.core_dumped = WCOREDUMP(status);
  }
  const bool is_killed = outcome.end == RankEnd::kSignaled;
  add_use(slot, outcome);
  outcome.abandoned = slot.abandoned_in != 0;
  if (outcome.abandoned) {
    outcome.message = abandonment_description(slot.abandoned_in);
    return;
  }
  if (slot.is_status_taken != 0 && !has_own_crash) {
    outcome.message = kStatusTaken;
    return;
  }
  if (has_own_crash && is_from_error_file(slot.crash) && (is_killed || outcome.end == RankEnd::kStopped)) {
    if (!is_killed) return;
    describe_signal(slot, outcome);  // The kernel knows better; what the program said before is worth a line.
    outcome.message += fmt::format("\n{}", error_file_head(slot.crash));
  } else if (has_own_crash) {
    add_crash(slot.crash, outcome);
    if (slot.crash.kind != CrashKind::kBadErrorFile) outcome.ended = std::chrono::nanoseconds(slot.crash.time_ns);
  } else if (outcome.end == RankEnd::kSignaled) {
    describe_signal(slot, outcome);
  }
}

}  // namespace

RankOutcome outcome_of(const ProcessSlot& slot) {
  RankOutcome outcome;
  outcome.rank = slot.rank;
  outcome.local_rank = slot.local_rank;
  if (slot.world_size.load(std::memory_order_acquire) != 0)
    outcome.world_rank = slot.world_rank.load(std::memory_order_relaxed);
  outcome.pid = slot.pid.load(std::memory_order_acquire);
  outcome.stopped = std::chrono::nanoseconds(slot.stopped_ns.load(std::memory_order_acquire));
  switch (slot.state.load(std::memory_order_acquire)) {
    case ProcessState::kFree:
    case ProcessState::kReserved:
      outcome.end = RankEnd::kNotStarted;
      break;
    case ProcessState::kStarted:
    case ProcessState::kRunning:
    case ProcessState::kFinished:
      outcome.end = RankEnd::kRunning;
      break;
    case ProcessState::kDead:
      add_end(slot, outcome);
      break;
  }
  return outcome;
}

RankOutcome outcome_of_crash(const CrashRecord& crash) {
  RankOutcome outcome;
  outcome.end = crash.kind == CrashKind::kException ? RankEnd::kRaised : RankEnd::kSignaled;
  outcome.signal = crash.signal;
  outcome.ended = std::chrono::nanoseconds(crash.time_ns);
  add_crash(crash, outcome);
  return outcome;
}

}  // namespace retinue
