#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/base/detail/never.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/message_channel.h"
#include "retinue/ipc/detail/message_codec.h"

namespace retinue {

/// A bounded queue between processes of a job: many producers, many consumers, messages of type T.
///
/// T is trivially copyable without pointers, a vector of such values, a string, or of a type that cereal can archive.
/// Copies of a Queue are the same queue. As an argument of spawn, or in a message, it arrives as the same queue. Its
/// memory is freed with the last copy. Messages of one producer keep their order. A producer may end right after put:
/// the message arrives. A process may be killed at any point in these functions: no other one is blocked by that, and
/// no message arrives damaged or twice.
///
/// Blocking: put while it is full, get while it is empty; with a timeout or a Deadline at most that long. Both sleep.
/// Threads: all functions, from any thread of any process of the job.
/// Errors: UsageError from all functions of a default-constructed queue. Closed from put after close(), and from get
/// after that when the queue is empty. PeerLost from a waiting put when all processes that ever got from the queue have
/// ended, the last of them by a failure: see QueueOptions::no_consumer_timeout. SharedMemoryExhausted if a message
/// needs memory. SystemError from a wait when the job's guardian was killed.
template <class T>
class Queue : public QueueBase {
 public:
  /// Makes an empty handle; assign a queue later.
  Queue() = default;
  /// Makes a queue in the job of this process, or in another job. Errors: UsageError for invalid options.
  explicit Queue(const QueueOptions& options) : Queue(JobMemory::current(), options) {}
  template <std::integral Count>
  explicit Queue(Count) {
    static_assert(detail::kNever<Count>, "a Queue takes options: write Queue<T> queue({.capacity = 10})");
  }
  Queue(const std::shared_ptr<JobMemory>& memory, const QueueOptions& options)
      : QueueBase(detail::MessageChannel::create(memory, options, detail::type_hash<T>(), space_of(options))) {}

  void put(const T& value) { put(value, Time::max()); }
  /// Returns false if there was no space in time.
  bool put(const T& value, Time timeout) {
    detail::MessageChannel& channel = this->channel();
    if constexpr (detail::kIsWord<T>) {
      return channel.put_word(detail::word_of(value), timeout);
    } else if constexpr (detail::kIsPlain<T> || detail::kIsPlainRow<T>) {
      return channel.put(detail::plain_bytes(value), {}, timeout);
    } else {
      const detail::Encoded encoded = detail::encode_message(value, channel);
      return channel.put(detail::plain_bytes(encoded.bytes), encoded.references, timeout);
    }
  }
  bool put(const T& value, Deadline deadline) { return put(value, deadline.left()); }
  bool try_put(const T& value) { return put(value, Time(0)); }
  /// Puts values from where they are in memory; they arrive as a T. For queues of vectors.
  template <class V, std::size_t extent>
  requires detail::RowOf<T, V>
  bool put(std::span<V, extent> row, Time timeout = Time::max()) {
    return channel().put(std::as_bytes(row), {}, timeout);
  }

  T get() { return *get(Time::max()); }
  /// Returns nothing if no message came in time.
  std::optional<T> get(Time timeout) {
    detail::MessageChannel& channel = this->channel();
    if constexpr (detail::kIsWord<T>) {
      std::uint64_t word = 0;
      if (channel.take_word_at_once(word)) return of_word(word);
      if (!channel.is_joinable()) {
        if (channel.take_words({&word, 1}, timeout) == 0) return std::nullopt;
        return of_word(word);
      }
    }
    detail::TakenMessage taken;
    if (!channel.take(taken, timeout)) return std::nullopt;
    return value_of(channel, taken);
  }
  std::optional<T> get(Deadline deadline) { return get(deadline.left()); }
  std::optional<T> try_get() { return get(Time(0)); }

  /// Puts the values one after the other, perhaps with others' values in between, and returns how many it put. It puts
  /// fewer if time ran out or a value couldn't be put. It throws an error only if it put none before: continue with the
  /// remaining values, and the next call throws it.
  std::size_t put_many(std::span<const T> values, Time timeout = Time::max()) {
    const Deadline deadline = Deadline::after(timeout);
    std::size_t count = 0;
    try {
      while (count < values.size()) {
        const std::span<const T> left = values.subspan(count);
        const std::size_t wanted = detail::kIsWord<T> ? std::min(left.size(), kBatch) : 1;
        const std::size_t part = put_some(left.first(wanted), deadline.left());
        count += part;
        if (part < wanted) break;
      }
    } catch (const std::exception&) {
      if (count == 0) throw;
    }
    return count;
  }
  /// Returns at least one message, unless none came in time, and any others that are there, at most `most`.
  std::vector<T> get_many(std::size_t most, Time timeout = Time::max()) {
    std::vector<T> values;
    for (Time left = timeout; values.size() < most; left = Time(0)) {
      std::optional<T> value = values.empty() ? get(left) : next_if_any();
      if (!value) break;
      values.push_back(std::move(*value));
    }
    return values;
  }

  template <class Archive>
  void save(Archive& archive) const {
    archive(*this ? channel().block() : SharedBlock());
  }
  template <class Archive>
  void load(Archive& archive) {
    SharedBlock block;
    archive(block);
    set_channel(block ? detail::MessageChannel::open(block, detail::type_hash<T>()) : nullptr);
  }

 private:
  static constexpr std::size_t kBatch = 64;

  /// Returns how many values of a batch of words, or of one other value, were put in time.
  std::size_t put_some(std::span<const T> values, Time timeout) {
    if constexpr (detail::kIsWord<T>) {
      std::array<std::uint64_t, kBatch> words;
      std::transform(values.begin(), values.end(), words.begin(), detail::word_of<T>);
      return channel().put_words({words.data(), values.size()}, timeout);
    } else {
      return put(values.front(), timeout) ? 1 : 0;
    }
  }

  static std::size_t space_of(const QueueOptions& options) {
    if constexpr (detail::kIsWord<T>) return detail::default_space<T>();
    return options.message_bytes != 0 ? std::max(options.message_bytes, sizeof(BlockHandle))
                                      : detail::default_space<T>();
  }

  static T of_word(std::uint64_t word) { return detail::value_of_bytes<T>(std::as_bytes(std::span(&word, 1))); }

  /// Finishes the message also if it throws.
  static T value_of(detail::MessageChannel& channel, const detail::TakenMessage& taken) {
    try {
      T value = detail::value_of_bytes<T>(taken.bytes);
      if (channel.is_joinable()) {
        channel.keep(taken);
      } else {
        channel.finish(taken);
      }
      return value;
    } catch (...) {
      channel.finish(taken);
      throw;
    }
  }

  std::optional<T> next_if_any() {
    try {
      return try_get();
    } catch (const Closed&) {
      return std::nullopt;
    }
  }
};

}  // namespace retinue
