#include "ipc/ring/ring_consumers.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/char_field.h"
#include "ipc/memory/ring_owner.h"
#include "ipc/ring/loss_text.h"
#include "os/process/signal_names.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

std::uint32_t incarnation_of(const ProcessSlot& process) {
  return process.incarnation.load(std::memory_order_acquire);
}

/// Whether the slot is another's by now, or that one was reaped.
bool is_gone(const ProcessSlot& process, ConsumerNote note) {
  const ProcessState state = process.state.load(std::memory_order_acquire);
  const bool can_get = state == ProcessState::kRunning || state == ProcessState::kFinished;
  return !note.is(incarnation_of(process)) || !can_get;
}

bool was_stopped(const ProcessSlot& process) {
  return process.stop_signal.load(std::memory_order_relaxed) != 0;
}

/// Of a dead process, as "threw std::runtime_error: no such file".
std::string end_text(const ProcessSlot& process, int status) {
  constexpr std::size_t kMostShown = 200;
  if (WIFSIGNALED(status)) return fmt::format("was killed by {}", signal_name(WTERMSIG(status)));
  const CrashRecord& crash = process.crash;
  if (crash.phase.load(std::memory_order_acquire) != 2 || crash.kind != CrashKind::kException)
    return fmt::format("failed, with exit status {}", WEXITSTATUS(status));
  const std::string message = text_of(crash.message);
  const std::string line = message.substr(0, std::min(message.find('\n'), kMostShown));
  return fmt::format("threw {}: {}{}", text_of(crash.type), line, line.size() < message.size() ? " ..." : "");
}

}  // namespace

ConsumerNote ConsumerNote::of(const ProcessSlot& process) {
  const bool is_rank = process.context != ProcessSlot::kNoContext && process.is_process == 0;
  const auto rank = static_cast<std::uint64_t>(is_rank ? process.rank + 1 : 0) & 0xffffu;
  const auto pid = static_cast<std::uint32_t>(process.pid.load(std::memory_order_relaxed));
  return ConsumerNote(std::uint64_t{pid} << kPidShift | rank << kRankShift | kIsOne |
                      (incarnation_of(process) & 0x7fffu));
}

void note_consumer(const JobMemory& memory, RingHeader& header) {
  const std::uint32_t slot = memory.own_slot() % kMaxProcesses;
  header.consumers[slot].store(ConsumerNote::of(memory.header().processes[slot]).word(), std::memory_order_release);
}

ConsumerNote noted_consumer(const RingHeader& header, std::uint32_t owner) {
  const ConsumerNote note(header.consumers[owner % kMaxProcesses].load(std::memory_order_acquire));
  return note && note.is(owner >> kOwnerSlotBits) ? note : ConsumerNote(0);
}

bool ConsumerWatch::is_any_left() const {
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const ConsumerNote note(header_.consumers[slot].load(std::memory_order_acquire));
    if (note && !is_gone(memory_.header().processes[slot], note)) return true;
  }
  return false;
}

/// Of those that the table still has. Null: none.
const ProcessSlot* ConsumerWatch::last_consumer() const {
  const ProcessSlot* last = nullptr;
  std::uint64_t latest_ns = 0;
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const ConsumerNote note(header_.consumers[slot].load(std::memory_order_acquire));
    const ProcessSlot& process = memory_.header().processes[slot];
    if (!note || !note.is(incarnation_of(process))) continue;
    const std::uint64_t ended_ns = process.ended_ns.load(std::memory_order_relaxed);
    if (last != nullptr && ended_ns < latest_ns) continue;
    latest_ns = ended_ns;
    last = &process;
  }
  return last;
}

/// For which the job stopped `stopped`, as it does with all that were started together. Null: none.
const ProcessSlot* ConsumerWatch::failed_beside(const ProcessSlot& stopped) const {
  if (stopped.context == ProcessSlot::kNoContext) return nullptr;
  const ProcessSlot* const begin = memory_.header().processes;
  const ProcessSlot* const found = std::find_if(begin, begin + kMaxProcesses, [&](const ProcessSlot& process) {
    return process.context == stopped.context && process.state.load(std::memory_order_acquire) == ProcessState::kDead &&
           !was_stopped(process) && process.exit_status.load(std::memory_order_relaxed) != 0;
  });
  return found == begin + kMaxProcesses ? nullptr : found;
}

void ConsumerWatch::find_last() {
  const ProcessSlot* const last = last_consumer();
  if (last == nullptr) return;
  // Who was stopped on request did not fail.
  const ProcessSlot* const failed = was_stopped(*last) ? failed_beside(*last) : last;
  const int status = failed == nullptr ? 0 : failed->exit_status.load(std::memory_order_relaxed);
  if (status == 0) return;
  // As it was noted: its slot may be free by now.
  const ConsumerNote noted(header_.consumers[last - memory_.header().processes].load(std::memory_order_acquire));
  const ConsumerNote consumer = failed == last ? noted : ConsumerNote::of(*failed);
  std::string text = fmt::format("{}, {}", consumer_text(consumer.rank(), consumer.pid()), end_text(*failed, status));
  if (failed != last)
    text = fmt::format("{}, was stopped by the job after {}", consumer_text(noted.rank(), noted.pid()), text);
  last_ = Gone{consumer.rank(), std::move(text)};
}

void ConsumerWatch::look() {
  if (header_.no_consumer_ns == ~std::uint64_t{0}) return;
  if (is_any_left()) {
    last_.reset();
    return;
  }
  const std::chrono::nanoseconds patience(header_.no_consumer_ns);
  if (!last_) {
    find_last();
    until_ = JobDeadline::after(memory_.header(), patience);
  }
  if (!last_ || !until_->passed()) return;
  throw PeerLost(
      fmt::format(
          "put: the queue (capacity {}) is full and all its consumers have ended: the last one, {}, and no other one "
          "came within {} ms. Start another consumer in time, or set a longer QueueOptions::no_consumer_timeout",
          header_.capacity, last_->text, std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()),
      last_->rank < 0 ? std::vector<int>() : std::vector<int>{last_->rank});
}

}  // namespace retinue
