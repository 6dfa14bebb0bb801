#include "retinue/ipc/detail/message_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "ipc/memory/job_end.h"
#include "ipc/queue/channel_impl.h"
#include "ipc/ring/loss_text.h"
#include "ipc/ring/ring_words.h"
#include "os/sync/clock.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue::detail {
namespace {

constexpr std::uint32_t kSlotsAtOnce = 4096;  // Are looked at.

}  // namespace

MessageChannel::Impl::Impl(const SharedBlock& held)
    : block(held),
      memory(held.memory()),
      ring(*memory, held.handle()),
      is_guest(is_guest_slot(*memory, memory->own_slot())) {}

MessageChannel::Impl::~Impl() {
  if (memory->is_of_this_process()) report_losses();
}

void MessageChannel::Impl::note_new_consumer() {
  const std::uint64_t before = ring.header().consumers[memory->own_slot() % kMaxProcesses].load();
  // Of a dead consumer whose slot this process has now: what it had in hand, as long as it is known.
  if (before != 0 && ring.sweep(0, std::min(ring.capacity(), kSlotsAtOnce))) notify_repair();
  retinue::note_consumer(*memory, ring.header());
  consumer_slot.store(memory->own_slot(), std::memory_order_relaxed);
}

bool MessageChannel::Impl::has_unreported_losses() const {
  const RingLosses& losses = ring.header().losses;
  return losses.told.load(std::memory_order_relaxed) < losses.count.load(std::memory_order_acquire);
}

void MessageChannel::Impl::report_losses() noexcept {
  constexpr std::uint64_t kMostTold = 10;
  RingLosses& losses = ring.header().losses;
  while (has_unreported_losses()) {
    std::uint64_t told = losses.told.load(std::memory_order_relaxed);
    const std::uint64_t next = told < kMostTold ? told + 1 : ring.lost();
    if (!losses.told.compare_exchange_strong(told, next, std::memory_order_relaxed) || told >= kMostTold) continue;
    try {
      const std::optional<LostMessage> lost = ring.lost_message(next);
      if (!lost) continue;
      std::string text =
          loss_text(*lost, fmt::format("a {} of capacity {}", partner ? "pipe" : "queue", ring.capacity()));
      if (next == kMostTold) text += "retinue: further losses of it are not reported; lost() counts them\n";
      write_standard_error(text);
    } catch (const std::exception&) {
      // Not for want of memory to say it.
    }
  }
}

/// For a wait that was not woken for a while. True if it changed something.
bool MessageChannel::Impl::look_up() {
  throw_if_wait_ends(*memory, "waiting for a queue");
  if (close_without_partner()) return true;
  const std::uint32_t from = sweep_from.fetch_add(kSlotsAtOnce, std::memory_order_relaxed);
  const bool has_changed = ring.sweep(from % ring.capacity(), kSlotsAtOnce);
  report_losses();
  if (!has_changed) return false;
  notify_repair();
  return true;
}

void MessageChannel::Impl::notify_repair() {
  RingHeader& header = ring.header();
  retinue::ring(header.not_full);
  if (retinue::ring(header.not_empty)) ring.ring_pollers();
  ring_all_parked(header.done);
}

/// Who only ever tries must learn of deaths, too.
bool MessageChannel::Impl::is_time_to_look_up() {
  const std::uint64_t now = monotonic_ns();
  std::uint64_t last = last_look_ns.load(std::memory_order_relaxed);
  return now - last >= static_cast<std::uint64_t>(std::chrono::nanoseconds(kRingLookUp).count()) &&
         last_look_ns.compare_exchange_strong(last, now, std::memory_order_relaxed);
}

/// Several messages since the last wait of this kind are a stream.
RingPace MessageChannel::Impl::pace_at(const RingBell& bell) {
  constexpr std::uint64_t kStream = 3;
  const bool puts = &bell == &ring.header().not_full;
  const std::uint64_t count = ring.count_over(puts ? ring.header().put : ring.header().get);
  std::atomic<std::uint64_t>& before = puts ? put_before : taken_before;
  const bool streams = count - before.load(std::memory_order_relaxed) >= kStream;
  before.store(count, std::memory_order_relaxed);
  return streams ? RingPace::kStream : RingPace::kAnswer;
}

void MessageChannel::Impl::close() {
  RingHeader& header = ring.header();
  ring.close();
  ring_all_parked(header.not_full);
  ring_all_parked(header.not_empty);
  ring.ring_pollers();
}

void MessageChannel::Impl::throw_closed(const char* what) {
  throw Closed(fmt::format("{}: the queue was closed", what));
}

MessageChannel::MessageChannel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MessageChannel::~MessageChannel() = default;

const SharedBlock& MessageChannel::block() const noexcept {
  return impl_->block;
}

bool MessageChannel::put_word_at_once(std::uint64_t word) {
  if (impl_->is_guest || !impl_->ring.put_word_alone(word)) return false;  // A guest looks after the job first.
  if (ring_alone(impl_->ring.header().not_empty)) impl_->ring.ring_pollers();
  return true;
}

bool MessageChannel::take_word_at_once(std::uint64_t& word) {
  if (!impl_->ring.take_word_alone(word)) return false;
  ring_alone(impl_->ring.header().not_full);
  if (impl_->has_poller.load(std::memory_order_relaxed)) [[unlikely]]
    settle_descriptor();
  return true;
}

std::size_t MessageChannel::put_words(std::span<const std::uint64_t> words, Time timeout) {
  if (impl_->is_guest) throw_if_job_ends(*impl_->memory, "put");
  MessageRing& ring = impl_->ring;
  RingHeader& header = ring.header();
  std::size_t count = 0;
  const auto attempt = [&] {
    RingResult result = RingResult::kDone;
    const std::size_t before = count;
    while (count < words.size() && (result = ring.try_put_word(words[count])) == RingResult::kDone) ++count;
    if (count != before && ring_alone(header.not_empty)) ring.ring_pollers();
    return result;
  };
  try {
    const RingResult result = impl_->wait(header.not_full, timeout, attempt, [&] { return ring.has_space(); });
    if (result == RingResult::kClosed && count == 0) Impl::throw_closed("put");
  } catch (const Error&) {
    if (count == 0) throw;  // Else the next one meets it.
  }
  return count;
}

std::size_t MessageChannel::take_words(std::span<std::uint64_t> words, Time timeout) {
  impl_->note_consumer();
  MessageRing& ring = impl_->ring;
  RingHeader& header = ring.header();
  std::size_t count = 0;
  const auto attempt = [&] {
    RingResult result = RingResult::kDone;
    while (count < words.size() && (result = ring.try_take_word(words[count])) == RingResult::kDone) ++count;
    if (count == 0) return result;
    ring_alone(header.not_full);
    return RingResult::kDone;
  };
  const RingResult result = impl_->wait(header.not_empty, timeout, attempt, [&] { return ring.has_message(); });
  if (result == RingResult::kClosed) Impl::throw_closed("get");
  settle_descriptor();
  return count;
}

void MessageChannel::announce() {
  // Whoever polls looks in vain, and waits for the ring behind this one.
  if (retinue::announce(impl_->ring.header().not_empty)) impl_->ring.ring_pollers();
}

bool MessageChannel::put(std::span<const std::byte> message, const std::vector<SharedBlock>& references, Time timeout) {
  MessageRing& ring = impl_->ring;
  RingHeader& header = ring.header();
  if (ring.has_words()) throw UsageError("put: the queue is one for words: job memory was overwritten");
  if (impl_->is_guest) throw_if_job_ends(*impl_->memory, "put");
  std::array<BlockHandle, 8> in_slot;
  const bool fits = references.size() <= in_slot.size() &&
                    message.size() + references.size() * sizeof(BlockHandle) <= ring.space_bytes();
  if (fits) std::transform(references.begin(), references.end(), in_slot.begin(), std::mem_fn(&SharedBlock::handle));
  std::optional<Payload> payload;
  if (!fits) payload.emplace(*impl_->memory, message, references);
  const auto attempt = [&] {
    const RingResult result = payload ? ring.try_put_payload(payload->handle())
                                      : ring.try_put(message, std::span(in_slot.data(), references.size()));
    if (result == RingResult::kDone) impl_->notify_message();
    return result;
  };
  const RingResult result = impl_->wait(header.not_full, timeout, attempt, [&] { return ring.has_space(); });
  if (result == RingResult::kClosed) Impl::throw_closed("put");
  if (result == RingResult::kDone && payload) payload->release();
  return result == RingResult::kDone;
}

bool MessageChannel::take(TakenMessage& taken, Time timeout) {
  impl_->note_consumer();
  MessageRing& ring = impl_->ring;
  TakenSlot slot;
  const RingResult result = impl_->wait(
      ring.header().not_empty, timeout, [&] { return ring.try_take(slot); }, [&] { return ring.has_message(); });
  impl_->report_losses();
  if (result == RingResult::kClosed) Impl::throw_closed("get");
  settle_descriptor();
  if (result == RingResult::kWait) return false;
  taken = {slot.index, slot.state, {}};
  try {
    const std::optional<BlockHandle> payload = ring.payload_in(slot);
    if (!payload) taken.bytes = ring.message_in(slot);
    if (payload) taken.bytes = std::as_bytes(std::span(payload_bytes(*impl_->memory, *payload)));
  } catch (...) {
    finish(taken);
    throw;
  }
  return true;
}

void MessageChannel::finish(const TakenMessage& taken) {
  RingHeader& header = impl_->ring.header();
  impl_->ring.finish({taken.index, taken.state});
  retinue::ring(header.not_full);
  if (header.done.parked.load(std::memory_order_seq_cst) != 0) ring_all_parked(header.done);
}

void MessageChannel::keep(const TakenMessage& taken) {
  const std::lock_guard lock(impl_->hand_mutex);
  impl_->in_hand.push_back(taken);
}

bool MessageChannel::is_joinable() const noexcept {
  return impl_->ring.header().is_joinable != 0;
}

void MessageChannel::task_done() {
  if (!is_joinable()) throw UsageError("task_done: the queue was made without QueueOptions::joinable");
  TakenMessage oldest;
  {
    const std::lock_guard lock(impl_->hand_mutex);
    if (impl_->in_hand.empty())
      throw UsageError("task_done: called more often than this process got messages from the queue");
    oldest = impl_->in_hand.front();
    impl_->in_hand.pop_front();
  }
  finish(oldest);
}

bool MessageChannel::join(Time timeout) {
  if (!is_joinable()) throw UsageError("join: the queue was made without QueueOptions::joinable");
  const auto attempt = [&] { return impl_->ring.is_finished() ? RingResult::kDone : RingResult::kWait; };
  return impl_->wait(impl_->ring.header().done, timeout, attempt, [] { return false; }) == RingResult::kDone;
}

void MessageChannel::close() {
  impl_->close();
}

bool MessageChannel::is_closed() const {
  return impl_->ring.is_closed();
}
std::size_t MessageChannel::capacity() const noexcept {
  return impl_->ring.capacity();
}
std::size_t MessageChannel::size() const {
  return impl_->ring.size();
}
bool MessageChannel::is_full() const {
  return impl_->ring.is_full();
}
std::uint64_t MessageChannel::lost() const {
  impl_->find_the_dead();
  return impl_->ring.lost();
}
std::vector<LostMessage> MessageChannel::lost_messages() const {
  impl_->find_the_dead();
  return impl_->ring.lost_messages();
}

}  // namespace retinue::detail
