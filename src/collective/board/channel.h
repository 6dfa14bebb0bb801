#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "collective/board/line.h"
#include "os/testing/crash_point.h"
#include "retinue/collective/call.h"

namespace retinue {

enum class EnvelopeKind : std::uint32_t {
  kInline,  ///< A whole message, in the envelope.
  kStaged,  ///< A whole message, in the channel's space.
  kAsk,     ///< A message that stays with its sender until the receiver answers.
  kPiece,   ///< The next bytes, in the channel's space, of a message for which the receiver has asked.
};

constexpr std::size_t kEnvelopeBytes = 40;
constexpr std::uint64_t kEnvelopes = 32;               ///< Slots of a channel's ring.
constexpr std::uint64_t kInNoJob = ~std::uint64_t{0};  ///< In place of an offset in job memory.

/// One entry of a channel: `stamp` last.
struct alignas(128) Envelope {
  std::atomic<std::uint64_t> stamp;  ///< Number of the envelope in its channel, from 1.
  EnvelopeKind kind;
  std::int32_t tag;
  std::uint64_t bytes;  ///< Of the message; of the piece, with kPiece.
  union {
    struct {
      std::uint64_t id;     ///< Number of the message among those that were announced.
      std::uint64_t place;  ///< Bytes from the beginning of the space; with kAsk: offset in job memory, or kInNoJob.
    } named;
    std::byte data[kEnvelopeBytes];  ///< With kInline.
  };
  SiteWords site;  ///< On a cache line of its own: nobody reads it before something went wrong.
};
static_assert(sizeof(Envelope) == 128);

/// What a receiver wants of an announced message.
enum class AnswerKind : std::uint32_t { kTaken, kSendPieces };

struct Answer {
  std::atomic<std::uint64_t> stamp;
  std::uint64_t id;
  AnswerKind kind;
};

/// The way of messages from one member to another, in job memory: a ring of envelopes and space for what doesn't fit
/// them, both used in order, and a ring of answers back. Each word has one writer. They are stored and loaded
/// sequentially consistently for who parks: see Waiter.
struct Channel {
  Envelope envelopes[kEnvelopes];

  alignas(128) std::atomic<std::uint64_t> taken;  ///< Envelopes that the receiver needs no more, and their space.
  alignas(128) Answer answers[kEnvelopes];

  alignas(128) std::atomic<std::uint64_t> consumed;  ///< Answers that the sender needs no more.

  std::byte* space() { return reinterpret_cast<std::byte*>(this + 1); }

  /// What a channel of a group of `size` has space for. Large groups have many channels, and share what a small one
  /// has.
  static std::size_t space_bytes(int size);
  static std::size_t bytes_for(int size) { return sizeof(Channel) + space_bytes(size); }
};

/// The sender's end. Threads: one at a time.
class ChannelSender {
 public:
  struct Message {
    EnvelopeKind kind = EnvelopeKind::kStaged;
    int tag = 0;
    std::size_t bytes = 0;
    std::uint64_t id = 0;
    std::uint64_t place = kInNoJob;  ///< With kAsk.
    ConstBytes data = {};            ///< With kStaged, which may become kInline, and kPiece.
    CallSite site = {"", 0};
  };

  ChannelSender(Channel& channel, std::size_t space_bytes) : channel_(&channel), space_bytes_(space_bytes) {}

  /// What comes in pieces has several of them in the space at once, so that sender and receiver copy side by side.
  std::size_t piece_bytes() const { return std::min(most_bytes(), kMostPieceBytes); }
  /// The most that may come at once: there is space for a few of those.
  std::size_t most_bytes() const { return space_bytes_ / 4; }

  /// False, and nothing done, where the channel is full. Afterwards the receiver must be rung.
  bool try_post(const Message& message);

  struct Answered {
    std::uint64_t id;
    AnswerKind kind;
  };
  /// Afterwards the receiver must be rung.
  std::optional<Answered> next_answer();

 private:
  static constexpr std::size_t kMostPieceBytes = std::size_t{16} << 10;

  bool has_envelope();
  /// Where in the space `bytes` bytes may be written now.
  std::optional<std::size_t> find_space(std::size_t bytes);
  void release_space();

  Channel* channel_;
  std::size_t space_bytes_;
  std::uint64_t posted_ = 0;
  std::uint64_t seen_taken_ = 0;
  std::uint64_t space_begin_ = 0;  ///< Of what is in use, counted over all laps.
  std::uint64_t space_end_ = 0;
  std::array<std::uint64_t, kEnvelopes> space_ends_{};  ///< Where the space in use ended when the envelope was posted.
  std::uint64_t answers_ = 0;
  std::array<SiteWriter, kEnvelopes> sites_;
};

/// The receiver's end. Threads: one at a time.
class ChannelReceiver {
 public:
  explicit ChannelReceiver(Channel& channel) : channel_(&channel) {}

  /// The next envelope, or null.
  const Envelope* peek() const {
    const Envelope& next = channel_->envelopes[taken_ % kEnvelopes];
    return next.stamp.load(std::memory_order_seq_cst) == taken_ + 1 ? &next : nullptr;
  }
  /// What came with it.
  ConstBytes data_of(const Envelope& envelope) const {
    if (envelope.kind == EnvelopeKind::kAsk) return {};
    return {envelope.kind == EnvelopeKind::kInline ? envelope.data : channel_->space() + envelope.named.place,
            static_cast<std::size_t>(envelope.bytes)};
  }
  /// Ends the use of the next envelope. Afterwards the sender must be rung.
  void take() {
    RETINUE_CRASH_POINT();
    // Pairs with ChannelSender::release_space().
    channel_->taken.store(++taken_, std::memory_order_seq_cst);
  }
  /// Once for each announced message. False, and nothing done, where the sender has too many to hear. Afterwards the
  /// sender must be rung.
  bool try_answer(std::uint64_t id, AnswerKind kind);

 private:
  Channel* channel_;
  std::uint64_t taken_ = 0;
  std::uint64_t answers_ = 0;
};

}  // namespace retinue
