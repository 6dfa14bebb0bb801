#include "collective/diagnosis/process_end.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <time.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "base/char_field.h"
#include "ipc/memory/process_slot.h"
#include "os/process/process_calls.h"
#include "retinue/base/deadline.h"

namespace retinue {
namespace {

/// A function that returns destroys its communicator a moment before the process says that it has finished. On a busy
/// machine that moment is long: what counts is how long the process has run since. One that sleeps is not about to end.
constexpr auto kWorkToTell = std::chrono::milliseconds(4);
constexpr auto kTimeToTell = std::chrono::seconds(1);
constexpr auto kPause = std::chrono::microseconds(200);

/// All threads' together. Zero where the kernel does not say.
std::chrono::nanoseconds cpu_time_of(pid_t pid) {
  clockid_t clock = {};
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

std::string signal_text(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal) : fmt::format("signal {}, SIG{}", signal, name);
}

std::string end_by_status(int status) {
  if (WIFSIGNALED(status)) return fmt::format("died ({})", signal_text(WTERMSIG(status)));
  return WEXITSTATUS(status) == 0 ? "finished normally" : fmt::format("exited with code {}", WEXITSTATUS(status));
}

std::string end_of_finished(const ProcessSlot& slot) {
  const CrashRecord& crash = slot.crash;
  if (crash.phase.load(std::memory_order_acquire) == 2 && crash.kind == CrashKind::kException)
    return fmt::format("threw {}", text_of(crash.type));
  return end_by_status(slot.exit_status.load(std::memory_order_relaxed));
}

std::optional<std::string> known_end_of(const ProcessSlot& slot) {
  const ProcessState state = slot.state.load(std::memory_order_acquire);
  if (state == ProcessState::kFinished) return end_of_finished(slot);
  if (state == ProcessState::kDead) return end_by_status(slot.exit_status.load(std::memory_order_relaxed));
  if (!slot.life.owner_died()) return std::nullopt;
  const int status = exit_status_of_ending(slot.pid.load(std::memory_order_relaxed));
  return status < 0 ? std::nullopt : std::optional(end_by_status(status));
}

}  // namespace

std::string end_of_process(const ProcessSlot& slot, bool has_left) {
  const pid_t pid = slot.pid.load(std::memory_order_relaxed);
  const auto enough = cpu_time_of(pid) + kWorkToTell;
  const Deadline deadline = Deadline::after(kTimeToTell);
  for (;;) {
    const bool is_over = deadline.passed() || cpu_time_of(pid) >= enough;
    if (auto end = known_end_of(slot)) return *std::move(end);
    if (is_over) break;
    std::this_thread::sleep_for(kPause);
  }
  return slot.life.owner_died() && !has_left ? "died" : "left the group";
}

}  // namespace retinue
