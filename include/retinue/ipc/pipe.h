#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/message_codec.h"
#include "retinue/ipc/detail/pipe_end.h"

namespace retinue {

/// One end of a pipe between processes of a job, named after Python's Connection.
///
/// T is as for Queue. Copies are the same end. As an argument of spawn, or in a message, it arrives as the same end.
/// The end is open while any process or message holds it, so move it to the process that should have it, or close()
/// your copy. Messages keep their order. A sender may end right after send. A process may be killed at any point in
/// these functions: that doesn't block any other process, and no message arrives damaged or twice.
///
/// Blocking: send while the pipe is full, recv and poll while it is empty; with a timeout or a Deadline at most that
/// long. All sleep.
/// Threads: all functions except close() and assignments, from any thread.
/// Errors: UsageError from all functions of a default-constructed or closed end, and for a direction that the end
/// doesn't have. Closed from recv when all messages were received and nobody holds the other end any more, and from
/// send when nobody does; a death is noticed after some 20 ms. SharedMemoryExhausted if a message needs memory.
/// SystemError from a wait when the job's guardian was killed.
template <class T>
class Connection {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes an empty handle; assign an end later.
  Connection() = default;

  void send(const T& value) { send(value, Time::max()); }
  /// Returns false if there was no space in time.
  bool send(const T& value, Time timeout) {
    if constexpr (detail::kIsPlain<T> || detail::kIsPlainRow<T> || detail::kIsWord<T>) {
      return end().send(detail::plain_bytes(value), {}, timeout);
    } else {
      const detail::Encoded encoded = detail::encode_message(value, end());
      return end().send(detail::plain_bytes(encoded.bytes), encoded.references, timeout);
    }
  }
  bool send(const T& value, Deadline deadline) { return send(value, deadline.left()); }
  /// Sends values from where they are in memory; they arrive as a T. For pipes of vectors.
  template <class V, std::size_t extent>
  requires detail::RowOf<T, V>
  bool send(std::span<V, extent> row, Time timeout = Time::max()) {
    return end().send(std::as_bytes(row), {}, timeout);
  }

  T recv() { return *recv(Time::max()); }
  /// Returns nothing if no message came in time.
  std::optional<T> recv(Time timeout) {
    std::optional<T> value;
    end().receive(timeout, [&](std::span<const std::byte> bytes) { value = detail::value_of_bytes<T>(bytes); });
    return value;
  }
  std::optional<T> recv(Deadline deadline) { return recv(deadline.left()); }

  /// Returns whether, within the timeout, recv() would return or throw at once.
  bool poll(Time timeout = Time(0)) { return end().poll(timeout); }
  bool poll(Deadline deadline) { return poll(deadline.left()); }

  /// Returns a descriptor for poll, select and epoll. It is readable when recv() would return or throw at once, and
  /// sometimes when it wouldn't, so call poll() then. It belongs to this end: don't read from it and don't close it. It
  /// is closed with the last copy of this end in this process. Cost: three descriptors, made by the first call.
  /// Errors: UsageError if 16 processes have a descriptor of this end; SystemError.
  int descriptor() { return end().descriptor(); }

  bool readable() const { return end().can_receive(); }
  bool writable() const { return end().can_send(); }
  /// Returns the number of messages to this end that were lost when their receiver died, counted as by Queue::lost().
  std::uint64_t lost() const { return end().lost(); }
  /// Returns the newest of them, as Queue::lost_messages() does.
  std::vector<LostMessage> lost_messages() const { return end().lost_messages(); }

  /// Releases this copy. The end is closed with the last copy.
  void close() { end_.reset(); }
  bool closed() const noexcept { return end_ == nullptr; }
  explicit operator bool() const noexcept { return end_ != nullptr; }

  template <class Archive>
  void save(Archive& archive) const {
    archive(end_ ? end_->block() : SharedBlock());
  }
  template <class Archive>
  void load(Archive& archive) {
    SharedBlock block;
    archive(block);
    end_ = block ? detail::PipeEnd::open(block, detail::type_hash<T>()) : nullptr;
  }

 private:
  template <class>
  friend struct Pipe;
  explicit Connection(std::shared_ptr<detail::PipeEnd> end) : end_(std::move(end)) {}

  detail::PipeEnd& end() const {
    if (end_ == nullptr) throw UsageError("this Connection is empty or was closed: get one from Pipe<T>::create()");
    return *end_;
  }

  std::shared_ptr<detail::PipeEnd> end_;
};

/// The two ends of a pipe: `auto [here, there] = Pipe<T>::create();`.
template <class T>
struct Pipe {
  Connection<T> first;
  Connection<T> second;

  /// Makes a pipe in the job of this process, or in another job. Errors: UsageError for invalid options;
  /// SharedMemoryExhausted.
  static Pipe create(const PipeOptions& options = {}) { return create(JobMemory::current(), options); }
  static Pipe create(const std::shared_ptr<JobMemory>& memory, const PipeOptions& options = {}) {
    const std::size_t space = options.message_bytes != 0 ? options.message_bytes : detail::default_space<T>();
    auto [first, second] = detail::PipeEnd::create(memory, options, detail::type_hash<T>(), space);
    return {Connection<T>(std::move(first)), Connection<T>(std::move(second))};
  }
};

}  // namespace retinue
