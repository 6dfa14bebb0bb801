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
#include "retinue/ipc/message_codec.h"
#include "retinue/ipc/pipe_end.h"

namespace retinue {

/// One end of a pipe between processes of a job, named after Python's Connection.
///
/// T as of Queue. Copies are the same end; as an argument of spawn, or in a message, it arrives as the same end. It is
/// open while any process or message holds it: so move it to who is to have it, or close() what was passed on. Messages
/// keep their order. A sender may end right after send. A process may be killed anywhere in here: no other one is
/// blocked by that, and no message arrives damaged or twice.
///
/// Blocking: send while the pipe is full, recv and poll while it is empty; with a timeout or a Deadline at most that
/// long. All sleep.
/// Threads: all functions but close() and assignments, from any thread.
/// Errors: UsageError from all functions of a default-made or closed one, and for the direction that it has not. Closed
/// from recv when all messages were received and nobody holds the other end any more, and from send when nobody does;
/// a death is noticed after some 20 ms. SharedMemoryExhausted where a message needs memory. SystemError from a wait
/// when the job's guardian was killed.
template <class T>
class Connection {
 public:
  using Time = std::chrono::nanoseconds;

  /// No end, until one is assigned.
  Connection() = default;

  void send(const T& value) { send(value, Time::max()); }
  /// False when there was no room in time.
  bool send(const T& value, Time timeout) {
    if constexpr (detail::kIsPlain<T> || detail::kIsPlainRow<T> || detail::kIsWord<T>) {
      return end().send(detail::plain_bytes(value), {}, timeout);
    } else {
      const detail::Encoded encoded = detail::encode_message(value, end());
      return end().send(detail::plain_bytes(encoded.bytes), encoded.references, timeout);
    }
  }
  bool send(const T& value, Deadline deadline) { return send(value, deadline.left()); }
  /// Values where they lie, which arrive as a T: for pipes of vectors.
  template <class V, std::size_t extent>
  requires detail::RowOf<T, V>
  bool send(std::span<V, extent> row, Time timeout = Time::max()) {
    return end().send(std::as_bytes(row), {}, timeout);
  }

  T recv() { return *recv(Time::max()); }
  /// Nothing when no message came in time.
  std::optional<T> recv(Time timeout) {
    std::optional<T> value;
    end().receive(timeout, [&](std::span<const std::byte> bytes) { value = detail::value_of_bytes<T>(bytes); });
    return value;
  }
  std::optional<T> recv(Deadline deadline) { return recv(deadline.left()); }

  /// Whether recv() would return or throw at once, within the timeout.
  bool poll(Time timeout = Time(0)) { return end().poll(timeout); }
  bool poll(Deadline deadline) { return poll(deadline.left()); }

  /// For poll, select and epoll: readable when recv() would return or throw at once, and now and then when it would
  /// not, so ask poll() then. It belongs to this end: don't read from it, don't close it; it is closed with the last
  /// copy of this end in this process. Cost: three descriptors, made by the first call.
  /// Errors: UsageError when 16 processes have one of this end; SystemError.
  int descriptor() { return end().descriptor(); }

  bool readable() const { return end().can_receive(); }
  bool writable() const { return end().can_send(); }
  /// Messages to this end that died with who had them in hand, counted as Queue::lost() does.
  std::uint64_t lost() const { return end().lost(); }
  /// The newest of them, as Queue::lost_messages() has them.
  std::vector<LostMessage> lost_messages() const { return end().lost_messages(); }

  /// Lets this copy go. The end is closed with the last one.
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
    if (end_ == nullptr) throw UsageError("this Connection is none, or was closed: take one of Pipe<T>::create()");
    return *end_;
  }

  std::shared_ptr<detail::PipeEnd> end_;
};

/// The two ends of a pipe: `auto [here, there] = Pipe<T>::create();`.
template <class T>
struct Pipe {
  Connection<T> first;
  Connection<T> second;

  /// In the job of this process, or in another's. Errors: UsageError for options that cannot be;
  /// SharedMemoryExhausted.
  static Pipe create(const PipeOptions& options = {}) { return create(JobMemory::current(), options); }
  static Pipe create(const std::shared_ptr<JobMemory>& memory, const PipeOptions& options = {}) {
    const std::size_t room = options.message_bytes != 0 ? options.message_bytes : detail::default_room<T>();
    auto [first, second] = detail::PipeEnd::create(memory, options, detail::type_hash<T>(), room);
    return {Connection<T>(std::move(first)), Connection<T>(std::move(second))};
  }
};

}  // namespace retinue
