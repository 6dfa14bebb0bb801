#include "ipc/ring_consumers.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "ipc/loss_text.h"
#include "ipc/ring_owner.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

std::uint32_t incarnation_of(const ProcessSlot& process) {
  return process.incarnation.load(std::memory_order_acquire);
}

/// Whether the slot is another's by now, or that one was reaped.
bool is_gone(const ProcessSlot& process, ConsumerNote note) {
  const ProcessState state = process.state.load(std::memory_order_acquire);
  return !note.is(incarnation_of(process)) || state == ProcessState::kDead || state == ProcessState::kFree;
}

std::string end_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("failed, with exit status {}", WEXITSTATUS(status));
  const char* const name = sigabbrev_np(WTERMSIG(status));
  return name == nullptr ? fmt::format("was killed by signal {}", WTERMSIG(status))
                         : fmt::format("was killed by SIG{}", name);
}

}  // namespace

ConsumerNote ConsumerNote::of(const ProcessSlot& process) {
  const bool is_rank = process.context != ProcessSlot::kNoContext;
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

void ConsumerWatch::find_last() {
  std::uint64_t latest_ns = 0;
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const ConsumerNote note(header_.consumers[slot].load(std::memory_order_acquire));
    const ProcessSlot& process = memory_.header().processes[slot];
    if (!note || !note.is(incarnation_of(process))) continue;
    const std::uint64_t ended_ns = process.ended_ns.load(std::memory_order_relaxed);
    if (ended_ns < latest_ns) continue;
    latest_ns = ended_ns;
    last_.reset();
    const int status = process.exit_status.load(std::memory_order_relaxed);
    // Who was stopped on request did not fail.
    if (status != 0 && process.stop_signal.load(std::memory_order_relaxed) == 0) last_ = Gone{note, end_text(status)};
  }
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
          "put: the queue is full, and no process that ever got from it lives: the last one, {}, {}, and no "
          "other one came within {} ms. Start another consumer in time, or set QueueOptions::no_consumer_timeout",
          consumer_text(last_->consumer.rank(), last_->consumer.pid()), last_->end,
          std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()),
      last_->consumer.rank() < 0 ? std::vector<int>() : std::vector<int>{last_->consumer.rank()});
}

}  // namespace retinue
