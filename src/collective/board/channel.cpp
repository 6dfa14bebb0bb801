#include "collective/board/channel.h"

#include <cstring>

#include "collective/kernels/kernels.h"
#include "os/testing/crash_point.h"

namespace retinue {
namespace {

constexpr std::size_t kLargestSpace = std::size_t{256} << 10;
constexpr std::size_t kSmallestSpace = std::size_t{16} << 10;
constexpr std::size_t kSpaceOfAllChannels = std::size_t{16} << 20;

constexpr std::uint64_t round_up_to_line(std::uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

std::size_t Channel::space_bytes(int size) {
  std::size_t bytes = kLargestSpace;
  const auto channels = static_cast<std::size_t>(size) * static_cast<std::size_t>(size);
  while (bytes > kSmallestSpace && bytes * channels > kSpaceOfAllChannels) bytes /= 2;
  return bytes;
}

void ChannelSender::release_space() {
  // Pairs with ChannelReceiver::take(): what the receiver read there it has read.
  seen_taken_ = channel_->taken.load(std::memory_order_seq_cst);
  if (seen_taken_ > 0) space_begin_ = space_ends_[(seen_taken_ - 1) % kEnvelopes];
}

bool ChannelSender::has_envelope() {
  if (posted_ - seen_taken_ < kEnvelopes) return true;
  release_space();
  return posted_ - seen_taken_ < kEnvelopes;
}

std::optional<std::size_t> ChannelSender::find_space(std::size_t bytes) {
  const std::uint64_t wanted = round_up_to_line(bytes);
  const std::uint64_t position = space_end_ % space_bytes_;
  // One message is never in two parts: what is left at the end is passed over.
  const std::uint64_t passed = position + wanted > space_bytes_ ? space_bytes_ - position : 0;
  const std::uint64_t end = space_end_ + passed + wanted;
  if (end - space_begin_ > space_bytes_) release_space();
  if (end - space_begin_ > space_bytes_) return std::nullopt;
  space_end_ = end;
  return static_cast<std::size_t>((end - wanted) % space_bytes_);
}

bool ChannelSender::try_post(const Message& message) {
  if (!has_envelope()) return false;
  const std::size_t slot = posted_ % kEnvelopes;
  Envelope& envelope = channel_->envelopes[slot];
  EnvelopeKind kind = message.kind;
  if (kind == EnvelopeKind::kStaged && message.data.size() <= kEnvelopeBytes) kind = EnvelopeKind::kInline;
  if (kind == EnvelopeKind::kInline) {
    if (!message.data.empty()) std::memcpy(envelope.data, message.data.data(), message.data.size());
  } else {
    std::uint64_t place = message.place;
    if (kind != EnvelopeKind::kAsk) {
      const auto space = find_space(message.data.size());
      if (!space) return false;
      copy_bytes(channel_->space() + *space, message.data.data(), message.data.size());
      place = *space;
    }
    envelope.named = {.id = message.id, .place = place};
  }
  envelope.kind = kind;
  envelope.tag = message.tag;
  envelope.bytes = message.bytes;
  sites_[slot].write(envelope.site, message.site);
  space_ends_[slot] = space_end_;
  ++posted_;
  RETINUE_CRASH_POINT();
  // Pairs with peek().
  envelope.stamp.store(posted_, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  return true;
}

std::optional<ChannelSender::Answered> ChannelSender::next_answer() {
  const Answer& answer = channel_->answers[answers_ % kEnvelopes];
  if (answer.stamp.load(std::memory_order_seq_cst) != answers_ + 1) return std::nullopt;
  const Answered answered{.id = answer.id, .kind = answer.kind};
  RETINUE_CRASH_POINT();
  // Pairs with try_answer(), which writes the slot again.
  channel_->consumed.store(++answers_, std::memory_order_seq_cst);
  return answered;
}

bool ChannelReceiver::try_answer(std::uint64_t id, AnswerKind kind) {
  if (answers_ - channel_->consumed.load(std::memory_order_seq_cst) == kEnvelopes) return false;
  Answer& answer = channel_->answers[answers_ % kEnvelopes];
  answer.id = id;
  answer.kind = kind;
  RETINUE_CRASH_POINT();
  answer.stamp.store(++answers_, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  return true;
}

}  // namespace retinue
