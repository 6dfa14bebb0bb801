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
  const bool can_get = state == ProcessState::kRunning || state == ProcessState::kFinished;
  return !note.is(incarnation_of(process)) || !can_get;
}

bool was_stopped(const ProcessSlot& process) {
  return process.stop_signal.load(std::memory_order_relaxed) != 0;
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

/// The one of those that ended last, as far as the table still has them. Null: of none.
template <class Counts>
const ProcessSlot* ConsumerWatch::last_ended(Counts counts) const {
  const ProcessSlot* last = nullptr;
  std::uint64_t latest_ns = 0;
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const ConsumerNote note(header_.consumers[slot].load(std::memory_order_acquire));
    const ProcessSlot& process = memory_.header().processes[slot];
    if (!note || !note.is(incarnation_of(process)) || !counts(process)) continue;
    const std::uint64_t ended_ns = process.ended_ns.load(std::memory_order_relaxed);
    if (last != nullptr && ended_ns < latest_ns) continue;
    latest_ns = ended_ns;
    last = &process;
  }
  return last;
}

void ConsumerWatch::find_last() {
  const ProcessSlot* last = last_ended([](const ProcessSlot&) { return true; });
  // Who was stopped on request did not fail; the job stops those that were started with one that did.
  if (last != nullptr && was_stopped(*last) && last->context != ProcessSlot::kNoContext)
    last = last_ended([&, context = last->context](const ProcessSlot& process) {
      return process.context == context && !was_stopped(process);
    });
  if (last == nullptr || was_stopped(*last)) return;
  const int status = last->exit_status.load(std::memory_order_relaxed);
  const auto slot = last - memory_.header().processes;
  if (status != 0)
    last_ = Gone{ConsumerNote(header_.consumers[slot].load(std::memory_order_acquire)), end_text(status)};
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
