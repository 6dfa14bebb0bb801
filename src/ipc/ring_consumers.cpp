#include "ipc/ring_consumers.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "ipc/loss_text.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

std::uint16_t mark_of(const ProcessSlot& process) {
  const std::uint32_t incarnation = process.incarnation.load(std::memory_order_acquire);
  return static_cast<std::uint16_t>(incarnation | RingHeader::kIsConsumer);
}

/// Whether the slot is another process's by now, or that one was reaped.
bool is_gone(const ProcessSlot& process, std::uint16_t mark) {
  const ProcessState state = process.state.load(std::memory_order_acquire);
  return mark_of(process) != mark || state == ProcessState::kDead || state == ProcessState::kFree;
}

std::string end_text(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("failed, with exit status {}", WEXITSTATUS(status));
  const char* const name = sigabbrev_np(WTERMSIG(status));
  return name == nullptr ? fmt::format("was killed by signal {}", WTERMSIG(status))
                         : fmt::format("was killed by SIG{}", name);
}

}  // namespace

void note_consumer(const JobMemory& memory, RingHeader& header) {
  const std::uint32_t slot = memory.own_slot() % kMaxProcesses;
  std::atomic<std::uint16_t>& noted = header.consumers[slot];
  const std::uint16_t mark = mark_of(memory.header().processes[slot]);
  if (noted.load(std::memory_order_relaxed) != mark) noted.store(mark, std::memory_order_release);
}

bool ConsumerWatch::is_any_left() const {
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const std::uint16_t mark = header_.consumers[slot].load(std::memory_order_acquire);
    if (mark != 0 && !is_gone(memory_.header().processes[slot], mark)) return true;
  }
  return false;
}

void ConsumerWatch::find_last() {
  std::uint64_t latest_ns = 0;
  for (std::uint32_t slot = 0; slot < kMaxProcesses; ++slot) {
    const std::uint16_t mark = header_.consumers[slot].load(std::memory_order_acquire);
    const ProcessSlot& process = memory_.header().processes[slot];
    if (mark == 0 || mark_of(process) != mark) continue;
    const std::uint64_t ended_ns = process.ended_ns.load(std::memory_order_relaxed);
    if (ended_ns < latest_ns) continue;
    latest_ns = ended_ns;
    const int status = process.exit_status.load(std::memory_order_relaxed);
    last_.reset();
    // Who was stopped on request did not fail.
    if (status == 0 || process.stop_signal.load(std::memory_order_relaxed) != 0) continue;
    const bool is_rank = process.context != ProcessSlot::kNoContext;
    last_ = Gone{is_rank ? process.rank : -1, process.pid.load(std::memory_order_relaxed), end_text(status)};
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
          consumer_text(last_->rank, last_->pid), last_->end,
          std::chrono::duration_cast<std::chrono::milliseconds>(patience).count()),
      last_->rank < 0 ? std::vector<int>() : std::vector<int>{last_->rank});
}

}  // namespace retinue
