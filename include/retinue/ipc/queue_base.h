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

/// A message that nobody can get any more, because a consumer died while it had the message.
struct LostMessage {
  enum class Reason {
    kConsumerDied,       ///< The queue uses OnConsumerDeath::kReport.
    kMaxDeliveries,      ///< The last delivery that QueueOptions::max_deliveries allows failed.
    kDeadLettersFull,    ///< As kMaxDeliveries, and the dead-letter queue was full.
    kDeadLettersClosed,  ///< As kMaxDeliveries, and the dead-letter queue was closed.
    kDeadLettersFailed,  ///< As kMaxDeliveries, and the dead-letter queue could not take it, as for lack of memory.
  };

  /// Its number among all messages ever put; the first is 1. A put that died halfway counts.
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  ///< Its size as it was sent.
  /// Its first bytes as they were sent, at most 64: a value as it is in memory, or an archive.
  std::string beginning = {};
  std::uint64_t deliveries = 0;  ///< How often a consumer got it.
  int consumer_pid = 0;          ///< The consumer that died with it last; 0: no longer known.
  int consumer_rank = -1;        ///< That consumer's rank; -1: it had none, or it is no longer known.
  Reason reason = Reason::kConsumerDied;
};

/// The functions that every Queue<T> has, regardless of T.
///
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-constructed queue.
class QueueBase {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes an empty handle.
  QueueBase() = default;

  /// Marks one message as done: the first that this process got and hasn't marked yet. For joinable queues.
  /// Errors: UsageError if there is none.
  void task_done();
  /// Waits until all messages are done. Returns false if they weren't in time. For joinable queues.
  void join() { join(Time::max()); }
  bool join(Time timeout);
  bool join(Deadline deadline) { return join(deadline.left()); }

  /// Makes all further puts fail. Messages in the queue can still be got.
  void close();
  bool is_closed() const;

  /// Returns the number of messages that nobody got yet, at the moment of the call. Cost: a look at every slot, as for
  /// empty().
  std::size_t size() const;
  bool empty() const { return size() == 0; }
  bool full() const;
  std::size_t capacity() const;

  /// Returns a descriptor for poll, select and epoll. It is readable when get() would return or throw at once, and
  /// sometimes when it wouldn't, so call try_get() then. It belongs to this queue in this process: don't read from it
  /// and don't close it. It is closed with the last copy here. The process counts as a consumer.
  /// Errors: UsageError if 16 processes have a descriptor of this queue; SystemError.
  /// Cost: three descriptors, made by the first call. A put makes a system call only if a process waits.
  int descriptor();

  /// Returns the number of messages that died with their consumers. Standard error reports each of the first ten of a
  /// queue.
  std::uint64_t lost() const;
  /// Returns the newest of them, at most 16, the oldest first.
  std::vector<LostMessage> lost_messages() const;

  explicit operator bool() const noexcept { return channel_ != nullptr; }

 protected:
  explicit QueueBase(std::shared_ptr<detail::MessageChannel> channel) : channel_(std::move(channel)) {}

  /// Errors: UsageError if there is none.
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
