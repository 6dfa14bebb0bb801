#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "ipc/memory/job_clock.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/payload.h"
#include "ipc/memory/poller.h"
#include "ipc/ring/message_ring.h"
#include "ipc/ring/ring_bell.h"
#include "ipc/ring/ring_consumers.h"
#include "os/sync/fork_safe_mutex.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/message_channel.h"

namespace retinue::detail {

class MessageChannel::Impl {
 public:
  explicit Impl(const SharedBlock& held);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Tries until it is kDone or kClosed, at most `timeout`. `is_more`: whether another waiter would succeed as well.
  template <class Try, class More>
  RingResult wait(RingBell& bell, Time timeout, Try attempt, More is_more);
  bool look_up();
  void notify_repair();
  /// After a message was put.
  void notify_message() {
    if (ring_as_announced(ring.header().not_empty)) ring.ring_pollers();
  }
  /// This process gets from it; said once is enough.
  void note_consumer() {
    if (consumer_slot.load(std::memory_order_relaxed) != memory->own_slot()) [[unlikely]]
      note_new_consumer();
  }
  void note_new_consumer();
  /// Says on standard error which messages were lost, if nobody said it yet.
  void report_losses() noexcept;
  void find_the_dead();
  bool has_unreported_losses() const;
  void close();
  /// Closes the channel of a pipe whose other end nobody holds any more. True: it did so.
  bool close_without_partner();
  bool close_if_alone() noexcept;
  bool wait_in_poll();
  bool is_time_to_look_up();
  RingPace pace_at(const RingBell& bell);
  [[noreturn]] static void throw_closed(const char* what);

  SharedBlock block;
  std::shared_ptr<JobMemory> memory;
  MessageRing ring;
  bool is_guest;  ///< This process goes on when the job ends.
  std::atomic<bool> has_poller{false};
  std::atomic<std::uint32_t> consumer_slot{JobMemory::kNoSlot};  ///< The process that is known to get: a fork is none.
  std::atomic<std::uint32_t> spin_budget{0};
  std::atomic<std::uint64_t> put_before{0};    ///< Messages, when a put had to wait last.
  std::atomic<std::uint64_t> taken_before{0};  ///< Messages, when a get had to wait last.
  std::atomic<std::uint32_t> sweep_from{0};
  std::atomic<std::uint64_t> last_look_ns{0};
  BlockHandle partner;  ///< Of a pipe: what stands for its other end.
  ForkSafeMutex poller_mutex;
  std::unique_ptr<Poller> poller;
  std::mutex hand_mutex;
  std::deque<TakenMessage> in_hand;  ///< Of a joinable queue, in the order in which they were got.
};

template <class Try, class More>
RingResult MessageChannel::Impl::wait(RingBell& bell, Time timeout, Try attempt, More is_more) {
  RingResult result = attempt();
  if (result != RingResult::kWait) return result;
  if (timeout <= Time(0)) return is_time_to_look_up() && look_up() ? attempt() : result;
  RingWaiter waiter(bell);
  const RingPace pace = pace_at(bell);
  while (waiter.spin(spin_budget, pace)) {
    result = attempt();
    if (result == RingResult::kWait) continue;
    RingWaiter::note_success(spin_budget);
    end_fences(bell);
    return result;
  }
  // Only now, since a look at the clock takes as long as many messages.
  const JobDeadline deadline = JobDeadline::after(memory->header(), timeout);
  const bool puts = &bell == &ring.header().not_full;
  ConsumerWatch consumers(*memory, ring.header());
  for (;;) {
    while (result == RingResult::kWait && !deadline.passed() && waiter.spin_for_announced()) result = attempt();
    if (result != RingResult::kWait) break;
    waiter.prepare();
    ring.see_solo_users(bell);
    result = attempt();
    if (result != RingResult::kWait || deadline.passed()) break;
    if (waiter.sleep(deadline)) continue;
    look_up();
    if (puts) consumers.look();
  }
  // The ring may have been meant for several.
  if (waiter.has_slept() && is_more()) {
    ring_parked(bell);
    if (&bell == &ring.header().not_empty) ring.ring_pollers();
  }
  return result;
}

/// A message in a block of its own, until a ring has it.
class Payload {
 public:
  Payload(JobMemory& memory, std::span<const std::byte> message, const std::vector<SharedBlock>& references)
      : memory_(&memory),
        handle_(store_payload(memory, {{reinterpret_cast<const char*>(message.data()), message.size()}}, references)) {}
  ~Payload() {
    try {
      if (memory_ != nullptr) memory_->release(handle_);
    } catch (const Error&) {
      // Given back with this process's other blocks.
    }
  }
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;

  const BlockHandle& handle() const { return handle_; }
  void release() { memory_ = nullptr; }

 private:
  JobMemory* memory_;
  BlockHandle handle_;
};

}  // namespace retinue::detail
