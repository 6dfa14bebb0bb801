#include "retinue/ipc/message_channel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "ipc/channel_impl.h"
#include "ipc/job_end.h"
#include "ipc/ring_words.h"
#include "os/clock.h"
#include "retinue/base/error.h"

namespace retinue::detail {

MessageChannel::Impl::Impl(const SharedBlock& held)
    : block(held),
      memory(held.memory()),
      ring(*memory, held.handle()),
      is_guest(is_guest_slot(*memory, memory->own_slot())) {}

/// For a wait that heard nothing for a while. True if it changed something.
bool MessageChannel::Impl::look_up() {
  throw_if_job_ends(*memory, "waiting for a queue");
  if (close_without_partner()) return true;
  constexpr std::uint32_t kSlotsAtOnce = 4096;
  const std::uint32_t from = sweep_from.fetch_add(kSlotsAtOnce, std::memory_order_relaxed);
  if (!ring.sweep(from % ring.capacity(), kSlotsAtOnce)) return false;
  RingHeader& header = ring.header();
  retinue::ring(header.not_full);
  retinue::ring(header.not_empty);
  ring_all_parked(header.done);
  return true;
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
  if (partner) ring_pollers();
}

void MessageChannel::Impl::throw_closed(const char* what) {
  throw Closed(fmt::format("{}: the queue was closed", what));
}

MessageChannel::MessageChannel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MessageChannel::~MessageChannel() = default;

std::shared_ptr<MessageChannel> MessageChannel::create(const std::shared_ptr<JobMemory>& memory,
                                                       const QueueOptions& options, std::uint64_t type,
                                                       std::size_t room_bytes) {
  constexpr std::size_t kMostRoom = std::size_t{1} << 30;
  if (room_bytes > kMostRoom)
    throw UsageError(fmt::format("a queue with message_bytes = {}: at most {}", room_bytes, kMostRoom));
  const RingShape shape{
      .type = type,
      .capacity = options.capacity,
      .room_bytes = static_cast<std::uint32_t>(room_bytes > 8 ? std::max(room_bytes, sizeof(BlockHandle)) : 8),
      .is_joinable = options.joinable ? 1u : 0u,
      .redelivers = options.on_consumer_death == OnConsumerDeath::kRedeliver ? 1u : 0u};
  const SharedBlock block = SharedBlock::allocate(memory, MessageRing::bytes_for(shape));
  MessageRing::lay_out(*memory, block.handle(), shape);
  return std::shared_ptr<MessageChannel>(new MessageChannel(std::make_unique<Impl>(block)));
}

std::shared_ptr<MessageChannel> MessageChannel::open(const SharedBlock& block, std::uint64_t type) {
  auto impl = std::make_unique<Impl>(block);
  if (impl->ring.header().type != type)
    throw UsageError("a queue arrived as a queue of another type of messages: give both sides the same one");
  return std::shared_ptr<MessageChannel>(new MessageChannel(std::move(impl)));
}

const SharedBlock& MessageChannel::block() const noexcept {
  return impl_->block;
}

bool MessageChannel::put_word_at_once(std::uint64_t word) {
  if (impl_->is_guest || !impl_->ring.put_word_alone(word)) return false;  // A guest looks after the job first.
  ring_alone(impl_->ring.header().not_empty);
  return true;
}

bool MessageChannel::take_word_at_once(std::uint64_t& word) {
  if (!impl_->ring.take_word_alone(word)) return false;
  ring_alone(impl_->ring.header().not_full);
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
    if (count != before) ring_alone(header.not_empty);
    return result;
  };
  const RingResult result = impl_->wait(header.not_full, timeout, attempt, [&] { return ring.has_room(); });
  if (result == RingResult::kClosed && count == 0) Impl::throw_closed("put");
  return count;
}

std::size_t MessageChannel::take_words(std::span<std::uint64_t> words, Time timeout) {
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
  return count;
}

void MessageChannel::announce() {
  retinue::announce(impl_->ring.header().not_empty);
}

bool MessageChannel::put(std::span<const std::byte> message, const std::vector<SharedBlock>& references, Time timeout) {
  MessageRing& ring = impl_->ring;
  RingHeader& header = ring.header();
  if (ring.has_words()) throw UsageError("put: the queue is one for words: job memory was overwritten");
  if (impl_->is_guest) throw_if_job_ends(*impl_->memory, "put");
  std::array<BlockHandle, 8> in_slot;
  const bool fits = references.size() <= in_slot.size() &&
                    message.size() + references.size() * sizeof(BlockHandle) <= ring.room_bytes();
  if (fits) std::transform(references.begin(), references.end(), in_slot.begin(), std::mem_fn(&SharedBlock::handle));
  std::optional<Parcel> parcel;
  if (!fits) parcel.emplace(*impl_->memory, message, references);
  const auto attempt = [&] {
    const RingResult result = parcel ? ring.try_put_parcel(parcel->handle())
                                     : ring.try_put(message, std::span(in_slot.data(), references.size()));
    if (result == RingResult::kDone) impl_->tell_message();
    return result;
  };
  const RingResult result = impl_->wait(header.not_full, timeout, attempt, [&] { return ring.has_room(); });
  if (result == RingResult::kClosed) Impl::throw_closed("put");
  if (result == RingResult::kDone && parcel) parcel->let_go();
  return result == RingResult::kDone;
}

bool MessageChannel::take(TakenMessage& taken, Time timeout) {
  MessageRing& ring = impl_->ring;
  TakenSlot slot;
  const RingResult result = impl_->wait(
      ring.header().not_empty, timeout, [&] { return ring.try_take(slot); }, [&] { return ring.has_message(); });
  if (result == RingResult::kClosed) Impl::throw_closed("get");
  if (result == RingResult::kWait) return false;
  taken = {slot.index, slot.state, {}};
  try {
    const std::optional<BlockHandle> parcel = ring.parcel_in(slot);
    if (!parcel) taken.bytes = ring.message_in(slot);
    if (parcel) taken.bytes = std::as_bytes(std::span(parcel_bytes(*impl_->memory, *parcel)));
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
  return impl_->ring.header().lost.load(std::memory_order_relaxed);
}

}  // namespace retinue::detail
