#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/queue_base.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {

/// What becomes of a message whose consumer died with it in hand.
enum class OnConsumerDeath {
  kReport,     ///< It is gone: lost() counts it, lost_messages() and standard error say which it was.
  kRedeliver,  ///< Another consumer gets it, maybe after messages that were put later, max_deliveries times in all.
};

struct QueueOptions {
  static constexpr std::uint32_t kDefaultDeliveries = 3;

  /// Messages that the queue holds, those in hand of a joinable one included.
  std::size_t capacity = 64;
  OnConsumerDeath on_consumer_death = OnConsumerDeath::kReport;
  /// true: a message is in hand until the consumer's task_done(), and its place is taken until then. false: until get
  /// has returned it.
  bool joinable = false;
  /// Room for a message in its slot, in bytes; 0: chosen for its type. Longer ones go through a block of their own.
  std::size_t message_bytes = 0;
  /// For kRedeliver: how many consumers may get a message, each of which dies with it in hand, before it goes to
  /// `dead_letters`, or is lost. 0: no limit. Three deaths in a row are hardly a coincidence, and a pool of four
  /// survives such a message by one.
  std::uint32_t max_deliveries = kDefaultDeliveries;
  /// Where messages go that were delivered so often: a queue of the same type in the same job, with as much room for a
  /// message. Without one they are lost, as with kReport, and as where that queue is full or closed.
  QueueBase dead_letters = {};
  /// How long a put waits at a full queue when all that ever got from it have ended, the last one by a failure; then it
  /// throws PeerLost. Long enough to start another consumer. max(): for ever. A queue of which nobody ever got knows
  /// of no consumers, and waits.
  std::chrono::milliseconds no_consumer_timeout = std::chrono::seconds(30);
};

namespace detail {

/// A message in hand.
struct TakenMessage {
  std::uint32_t index = 0;
  std::uint64_t state = 0;
  std::span<const std::byte> bytes;
};

/// What a queue is without its type: bytes in, bytes out, waiting, and the hold on its memory. Not used directly.
///
/// Times: zero only tries, nanoseconds::max() waits without an end of its own.
/// Errors: Closed from all that put after close(), and from those that take when nothing is left; PeerLost from puts
/// that wait for consumers of which none lives; SystemError from waits when the job's guardian was killed.
class MessageChannel {
 public:
  using Time = std::chrono::nanoseconds;

  /// A new queue in the job's memory. `type` tells types of messages apart; with `room_bytes` of at most 8 all messages
  /// are words. Errors: UsageError, SharedMemoryExhausted.
  static std::shared_ptr<MessageChannel> create(const std::shared_ptr<JobMemory>& memory, const QueueOptions& options,
                                                std::uint64_t type, std::size_t room_bytes);
  /// The queue in a block. Errors: UsageError if there is none, or one of another type.
  static std::shared_ptr<MessageChannel> open(const SharedBlock& block, std::uint64_t type);
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  const SharedBlock& block() const noexcept;

  /// Only where this thread is known to be the only one that puts, and there is room: else false.
  bool put_word_at_once(std::uint64_t word);
  bool put_word(std::uint64_t word, Time timeout) {
    return put_word_at_once(word) || put_words({&word, 1}, timeout) == 1;
  }
  /// Only where this thread is known to be the only one that takes, and a word is there: else false.
  bool take_word_at_once(std::uint64_t& word);
  /// Returns how many were put: fewer where time ran out, or after an error, which the next call meets.
  std::size_t put_words(std::span<const std::uint64_t> words, Time timeout);
  /// Waits for the first, and takes what else is there; returns how many. Not for joinable queues.
  std::size_t take_words(std::span<std::uint64_t> words, Time timeout);

  /// Whoever waits for a message is told that one will be there in some 100 us.
  void announce();
  /// A message, and the blocks that it refers to. False: not in time.
  bool put(std::span<const std::byte> message, const std::vector<SharedBlock>& references, Time timeout);
  /// False: not in time. finish() or keep() must follow.
  bool take(TakenMessage& taken, Time timeout);
  void finish(const TakenMessage& taken);
  /// It stays in hand until task_done().
  void keep(const TakenMessage& taken);

  bool is_joinable() const noexcept;
  /// Errors: UsageError if nothing is in hand, or the queue is not joinable.
  void task_done();
  bool join(Time timeout);

  void close();
  bool is_closed() const;
  std::size_t capacity() const noexcept;
  std::size_t size() const;
  bool is_full() const;
  std::uint64_t lost() const;
  std::vector<LostMessage> lost_messages() const;

  /// For a channel of a pipe, which is not of words. Whoever puts or waits closes it when nobody holds the block
  /// `partner` any more.
  void set_partner(const BlockHandle& partner);
  /// Looks after the partner, if that was not done lately.
  void look_after_partner();
  /// Waits until a message is there, or none will ever come. False: not in time.
  bool wait_for_message(Time timeout);
  /// Readable when wait_for_message() would not wait; maybe also else, until the next look. Errors: UsageError when too
  /// many processes have one; SystemError.
  int descriptor();

 private:
  class Impl;
  explicit MessageChannel(std::unique_ptr<Impl> impl);
  static BlockHandle dead_letters_of(const std::shared_ptr<JobMemory>& memory, const QueueOptions& options,
                                     std::uint64_t type, std::size_t room_bytes);
  /// After a message was taken, or looked for in vain.
  void settle_descriptor() noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace detail
}  // namespace retinue
