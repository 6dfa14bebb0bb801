// A descriptor to wait for, and what only channels of pipes have: another end that may be gone.
#include <algorithm>
#include <exception>
#include <string>

#include "ipc/memory/ring_owner.h"
#include "ipc/queue/channel_impl.h"

namespace retinue::detail {

void MessageChannel::set_partner(const BlockHandle& partner) {
  impl_->partner = partner;
}

bool MessageChannel::Impl::close_without_partner() {
  if (!partner || ring.is_closed() || memory->is_held(partner)) return false;
  close();
  return true;
}

bool MessageChannel::Impl::close_if_alone() noexcept {
  try {
    return close_without_partner();
  } catch (const Error&) {
    return false;  // Somebody stands still in the block table. Its end will be told.
  }
}

void MessageChannel::check_partner() {
  if (impl_->is_time_to_look_up()) impl_->close_without_partner();
}

bool MessageChannel::wait_for_message(Time timeout) {
  MessageRing& ring = impl_->ring;
  const auto look = [&] { return ring.look(); };
  const auto is_there = [&] { return ring.look() == RingResult::kDone; };  // It stays, for another one.
  const bool is_message = impl_->wait(ring.header().not_empty, timeout, look, is_there) != RingResult::kWait;
  settle_descriptor();
  return is_message;
}

namespace {

/// Puts the ticket where none is, or a void one. False: there is no such place.
bool list(const JobMemory& memory, RingHeader& header, std::uint64_t ticket) {
  // A poller that is gone may have left it here: this one has its entry now.
  for (const auto& place : header.pollers)
    if (place.load(std::memory_order_seq_cst) == ticket) return true;
  return std::any_of(std::begin(header.pollers), std::end(header.pollers), [&](std::atomic<std::uint64_t>& place) {
    std::uint64_t listed = place.load(std::memory_order_seq_cst);
    return is_void(memory, listed) && place.compare_exchange_strong(listed, ticket, std::memory_order_seq_cst);
  });
}

}  // namespace

int MessageChannel::descriptor() {
  {
    const std::lock_guard lock(impl_->poller_mutex);
    if (impl_->poller && impl_->poller->is_of_this_process()) return impl_->poller->descriptor();
    auto poller = std::make_unique<Poller>(impl_->memory);
    if (!list(*impl_->memory, impl_->ring.header(), poller->ticket()))
      throw UsageError((impl_->partner ? "a pipe's end: at most " : "a queue: at most ") +
                       std::to_string(RingHeader::kMostPollers) + " processes can have a descriptor of it at a time");
    impl_->note_consumer();
    poller->wait();
    // Of those that died before: their message would be told to nobody.
    impl_->find_the_dead();
    impl_->poller = std::move(poller);
    impl_->has_poller.store(true, std::memory_order_release);
  }
  settle_descriptor();
  return impl_->poller->descriptor();
}

void MessageChannel::settle_descriptor() noexcept {
  if (!impl_->has_poller.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(impl_->poller_mutex);
  if (!impl_->poller->is_of_this_process()) return;
  try {
    if (impl_->ring.look() == RingResult::kWait && !impl_->wait_in_poll()) return;
  } catch (const std::exception&) {
    // Somebody stands still in the block table: whoever tries to get looks again, and is told.
  }
  impl_->poller->ring();
}

/// Also where nobody waits.
void MessageChannel::Impl::find_the_dead() {
  if (ring.sweep(0, ring.capacity())) notify_repair();
  report_losses();
}

/// The descriptor is readable no more. True: what came before that was told to nobody.
bool MessageChannel::Impl::wait_in_poll() {
  RingBell& bell = ring.header().not_empty;
  const bool has_anyone_died = poller->wait();
  RingWaiter(bell).prepare();
  ring.see_solo_users(bell);
  if (close_if_alone()) return true;
  if (has_anyone_died && ring.sweep(0, ring.capacity())) notify_repair();
  report_losses();
  // Where it is closed, nobody rings any more.
  return ring.look() != RingResult::kWait || ring.is_closed();
}

}  // namespace retinue::detail
