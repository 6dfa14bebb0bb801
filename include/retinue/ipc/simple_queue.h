#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/message_codec.h"
#include "retinue/ipc/detail/simple_channel.h"

namespace retinue {

/// A queue between processes of a job that holds as many messages as fit in job memory, and has only put, get and
/// empty.
///
/// T is as for Queue. Copies are the same queue. As an argument of spawn, or in a message, it arrives as the same
/// queue. Its memory is freed with the last copy, and the memory of messages when they were got. Messages come in the
/// order in which they were put. A process may be killed at any point in these functions: that doesn't block any other
/// process, and each message is got by one consumer or remains in the queue. A producer may end right after put.
///
/// Blocking: get while it is empty; with a timeout or a Deadline at most that long. put never waits for consumers.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-constructed queue. SharedMemoryExhausted from put. SystemError
/// from get when the job's guardian was killed. TimeoutError from put when another process was stopped in the queue and
/// isn't continued.
/// Cost: each call takes a lock; a Queue of small messages is several times faster.
template <class T>
class SimpleQueue {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes an empty handle; assign a queue later.
  SimpleQueue() = default;
  /// Makes a queue in the job of this process, or in another job. Errors: SharedMemoryExhausted.
  static SimpleQueue create() { return create(JobMemory::current()); }
  static SimpleQueue create(const std::shared_ptr<JobMemory>& memory) {
    SimpleQueue queue;
    queue.channel_ = detail::SimpleChannel::create(memory, detail::type_hash<T>());
    return queue;
  }

  void put(const T& value) {
    if constexpr (detail::kIsPlain<T> || detail::kIsPlainRow<T> || detail::kIsWord<T>) {
      channel().put(detail::plain_bytes(value), {});
    } else {
      const detail::Encoded encoded = detail::encode_message(value, channel());
      channel().put(detail::plain_bytes(encoded.bytes), encoded.references);
    }
  }
  /// Puts values from where they are in memory; they arrive as a vector.
  template <class V, std::size_t extent>
  requires detail::RowOf<T, V>
  void put(std::span<V, extent> row) { channel().put(std::as_bytes(row), {}); }

  T get() { return *get(Time::max()); }
  /// Returns nothing if no message came in time.
  std::optional<T> get(Time timeout) {
    std::optional<T> value;
    channel().take(timeout, [&](std::span<const std::byte> bytes) { value = detail::value_of_bytes<T>(bytes); });
    return value;
  }
  std::optional<T> get(Deadline deadline) { return get(deadline.left()); }

  /// Returns whether the queue is empty at the moment of the call.
  bool empty() const { return channel().is_empty(); }

  explicit operator bool() const noexcept { return channel_ != nullptr; }

  template <class Archive>
  void save(Archive& archive) const {
    archive(channel_ ? channel_->block() : SharedBlock());
  }
  template <class Archive>
  void load(Archive& archive) {
    SharedBlock block;
    archive(block);
    channel_ = block ? detail::SimpleChannel::open(block, detail::type_hash<T>()) : nullptr;
  }

 private:
  detail::SimpleChannel& channel() const {
    if (channel_ == nullptr)
      throw UsageError("this SimpleQueue is empty: make it with SimpleQueue<T>::create(), or assign one to it");
    return *channel_;
  }

  std::shared_ptr<detail::SimpleChannel> channel_;
};

}  // namespace retinue
