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

/// What happens to a message whose consumer died while it had the message.
enum class OnConsumerDeath {
  kReport,     ///< It is lost: lost() counts it; lost_messages() and standard error describe it.
  kRedeliver,  ///< Another consumer gets it, perhaps after later messages, max_deliveries times in all.
};

struct QueueOptions {
  static constexpr std::uint32_t kDefaultDeliveries = 3;

  /// The number of messages that the queue holds, including, for a joinable queue, those not done yet.
  std::size_t capacity = 64;
  OnConsumerDeath on_consumer_death = OnConsumerDeath::kReport;
  /// true: the consumer has a message, and its slot is in use, until task_done(). false: until get has returned it.
  bool joinable = false;
  /// Space for a message in its slot, in bytes; 0: chosen for its type. Longer messages go through a block of their
  /// own.
  std::size_t message_bytes = 0;
  /// For kRedeliver: how many consumers may get a message, each of which dies with it, before it goes to `dead_letters`
  /// or is lost. 0: no limit. The default is 3: three deaths in a row are hardly a coincidence, and a pool of four
  /// survives such a message with one worker.
  std::uint32_t max_deliveries = kDefaultDeliveries;
  /// The queue for messages that were delivered that often: of the same type, in the same job, and with as much space
  /// for a message. Without one they are lost, as with kReport, and also if that queue is full or closed.
  QueueBase dead_letters = {};
  /// How long a put waits at a full queue when all processes that ever got from it have ended, the last one by a
  /// failure; then it throws PeerLost. The default leaves time to start another consumer. max(): no limit. If no
  /// process ever got from the queue, it knows of no consumers, and put waits.
  std::chrono::milliseconds no_consumer_timeout = std::chrono::seconds(30);
};

namespace detail {

/// A message that a consumer has taken and not finished.
struct TakenMessage {
  std::uint32_t index = 0;
  std::uint64_t state = 0;
  std::span<const std::byte> bytes;
};

/// The untyped part of a queue: bytes in, bytes out, waiting, and the hold on its memory. Not used directly.
///
/// Times: zero only tries; nanoseconds::max() waits without a time limit.
/// Errors: Closed from all functions that put after close(), and from functions that take when nothing is left;
/// PeerLost from puts that wait for consumers of which none lives; SystemError from waits when the job's guardian was
/// killed.
class MessageChannel {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes a new queue in the job's memory. `type` distinguishes types of messages. With `space_bytes` of at most 8 all
  /// messages are words. Errors: UsageError, SharedMemoryExhausted.
  static std::shared_ptr<MessageChannel> create(const std::shared_ptr<JobMemory>& memory, const QueueOptions& options,
                                                std::uint64_t type, std::size_t space_bytes);
  /// Opens the queue in a block. Errors: UsageError if there is none, or one of another type.
  static std::shared_ptr<MessageChannel> open(const SharedBlock& block, std::uint64_t type);
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  const SharedBlock& block() const noexcept;

  /// Works only if this thread is known to be the only one that puts, and there is space; else returns false.
  bool put_word_at_once(std::uint64_t word);
  bool put_word(std::uint64_t word, Time timeout) {
    return put_word_at_once(word) || put_words({&word, 1}, timeout) == 1;
  }
  /// Works only if this thread is known to be the only one that takes, and a word is there; else returns false.
  bool take_word_at_once(std::uint64_t& word);
  /// Returns how many were put: fewer if time ran out, or after an error, which the next call throws.
  std::size_t put_words(std::span<const std::uint64_t> words, Time timeout);
  /// Waits for the first word and takes any others that are there; returns how many. Not for joinable queues.
  std::size_t take_words(std::span<std::uint64_t> words, Time timeout);

  /// Informs waiting consumers that a message will be there in some 100 us.
  void announce();
  /// Puts a message and the blocks that it refers to. Returns false if not in time.
  bool put(std::span<const std::byte> message, const std::vector<SharedBlock>& references, Time timeout);
  /// Returns false if not in time. Otherwise call finish() or keep() afterwards.
  bool take(TakenMessage& taken, Time timeout);
  void finish(const TakenMessage& taken);
  /// Keeps the message assigned to this consumer until task_done().
  void keep(const TakenMessage& taken);

  bool is_joinable() const noexcept;
  /// Errors: UsageError if this process has no unfinished message, or the queue isn't joinable.
  void task_done();
  bool join(Time timeout);

  void close();
  bool is_closed() const;
  std::size_t capacity() const noexcept;
  std::size_t size() const;
  bool is_full() const;
  std::uint64_t lost() const;
  std::vector<LostMessage> lost_messages() const;

  /// For a channel of a pipe, which isn't a channel of words. A process that puts or waits closes it when nobody holds
  /// the block `partner` any more.
  void set_partner(const BlockHandle& partner);
  /// Checks the partner, unless that was done recently.
  void check_partner();
  /// Waits until a message is there, or until none can ever come. Returns false if not in time.
  bool wait_for_message(Time timeout);
  /// Returns a descriptor that is readable when wait_for_message() would not wait, and perhaps at other times until the
  /// next check. Errors: UsageError if too many processes have one; SystemError.
  int descriptor();

 private:
  class Impl;
  explicit MessageChannel(std::unique_ptr<Impl> impl);
  static BlockHandle dead_letters_of(const std::shared_ptr<JobMemory>& memory, const QueueOptions& options,
                                     std::uint64_t type, std::size_t space_bytes);
  /// Call it after a message was taken, or after looking for one in vain.
  void settle_descriptor() noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace detail
}  // namespace retinue
