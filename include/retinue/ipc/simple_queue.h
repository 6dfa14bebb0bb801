#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "retinue/ipc/message_codec.h"
#include "retinue/ipc/simple_channel.h"

namespace retinue {

/// A queue between processes of a job that holds as many messages as job memory has room for, and does nothing but put,
/// get and empty.
///
/// T as of Queue. Copies are the same queue; as an argument of spawn, or in a message, it arrives as the same queue.
/// Its memory goes with the last one, and that of messages when they were got. Messages come in the order in which they
/// were put. A process may be killed anywhere in here: no other one is blocked by that, and each message is got by one
/// consumer, or still there. A producer may end right after put.
///
/// Blocking: get while it is empty; with a timeout or a Deadline at most that long. put never waits for consumers.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-made one. SharedMemoryExhausted from put. SystemError from get
/// when the job's guardian was killed. TimeoutError from put when another process was stopped in the queue and is not
/// continued.
/// Cost: each call takes a lock; a Queue of small messages is several times faster.
template <class T>
class SimpleQueue {
 public:
  using Time = std::chrono::nanoseconds;

  /// No queue, until one is assigned.
  SimpleQueue() = default;
  /// In the job of this process, or in another's. Errors: SharedMemoryExhausted.
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
  /// Values where they lie, which arrive as a vector.
  template <class V, std::size_t extent>
  requires detail::RowOf<T, V>
  void put(std::span<V, extent> row) { channel().put(std::as_bytes(row), {}); }

  T get() { return *get(Time::max()); }
  /// Nothing when no message came in time.
  std::optional<T> get(Time timeout) {
    std::optional<T> value;
    channel().take(timeout, [&](std::span<const std::byte> bytes) { value = detail::value_of_bytes<T>(bytes); });
    return value;
  }
  std::optional<T> get(Deadline deadline) { return get(deadline.left()); }

  /// True in the moment of looking.
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
      throw UsageError("this SimpleQueue is none: make it with SimpleQueue<T>::create(), or assign one to it");
    return *channel_;
  }

  std::shared_ptr<detail::SimpleChannel> channel_;
};

}  // namespace retinue
