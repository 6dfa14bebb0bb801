#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/deadline.h"

namespace retinue {

namespace detail {
class MessageChannel;
}  // namespace detail

/// A message that nobody gets any more, since a consumer died with it in hand.
struct LostMessage {
  enum class Reason {
    kConsumerDied,       ///< The queue is one of OnConsumerDeath::kReport.
    kMaxDeliveries,      ///< Its last delivery that QueueOptions::max_deliveries allows failed.
    kDeadLettersFull,    ///< The same, and the dead-letter queue had no room.
    kDeadLettersClosed,  ///< The same, and the dead-letter queue was closed.
    kDeadLettersFailed,  ///< The same, and the dead-letter queue could not take it, as for want of memory.
  };

  /// Which of the messages that were ever put it is; the first is 1. A put that died halfway counts.
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  ///< Its size as it travelled.
  /// Its first bytes as they travelled, at most 64: a value as it lies in memory, or an archive.
  std::string beginning = {};
  std::uint64_t deliveries = 0;  ///< How often a consumer got it.
  int consumer_pid = 0;          ///< Of who died with it last; 0: not known any more.
  int consumer_rank = -1;        ///< The same one's rank; -1: it was none, or not known any more.
  Reason reason = Reason::kConsumerDied;
};

/// What every Queue<T> can do, whatever T is.
///
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-made one.
class QueueBase {
 public:
  using Time = std::chrono::nanoseconds;

  /// No queue.
  QueueBase() = default;

  /// The message that this process got first, of those that it has not said this of, is done. For joinable queues.
  /// Errors: UsageError if there is none.
  void task_done();
  /// Waits until all messages are done. False when they were not in time. For joinable queues.
  void join() { join(Time::max()); }
  bool join(Time timeout);
  bool join(Deadline deadline) { return join(deadline.left()); }

  /// No put succeeds after this; what is there can still be got.
  void close();
  bool is_closed() const;

  /// Messages that nobody got yet: true in the moment of looking. Cost: a look at every slot, as of the following.
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  bool full() const;
  std::size_t capacity() const;

  /// For poll, select and epoll: readable when get() would return or throw at once, and now and then when it would not,
  /// so ask try_get() then. It belongs to this queue in this process: don't read from it, don't close it; it is closed
  /// with the last copy here. The process counts as a consumer.
  /// Errors: UsageError when 16 processes have one of this queue; SystemError.
  /// Cost: three descriptors, made by the first call. A put makes a system call only where somebody waits.
  int descriptor();

  /// Messages that died with their consumers. Each is told on standard error, too, the first ten of a queue.
  std::uint64_t lost() const;
  /// The newest of them, at most 16, the oldest first.
  std::vector<LostMessage> lost_messages() const;

  explicit operator bool() const noexcept { return channel_ != nullptr; }

 protected:
  explicit QueueBase(std::shared_ptr<detail::MessageChannel> channel) : channel_(std::move(channel)) {}

  /// Errors: UsageError where there is none.
  detail::MessageChannel& channel() const {
    if (channel_ == nullptr) [[unlikely]]
      throw_none();
    return *channel_;
  }
  void set_channel(std::shared_ptr<detail::MessageChannel> channel) { channel_ = std::move(channel); }

 private:
  friend class detail::MessageChannel;
  [[noreturn]] static void throw_none();

  std::shared_ptr<detail::MessageChannel> channel_;
};

}  // namespace retinue
