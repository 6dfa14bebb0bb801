#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "retinue/collective/message.h"

namespace retinue {

class Operation;

/// A collective or message that was begun and may not have ended yet. It goes on while this member waits in, or asks,
/// any call or request of its communicator; there is no helper thread.
///
/// Its buffers and the communicator must stay in place, and nobody may read what it writes or write what it reads,
/// until it is done. Dropping the last copy of a receive to which no message has come forgets it; dropping any other
/// that isn't done breaks the group, and the others get CollectiveMismatch. Copies are the same request.
/// Threads: as the communicator, one at a time, but not always the same.
class [[nodiscard]] Request {
 public:
  Request() = default;
  explicit Request(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// Whether it has ended, well or not. Doesn't wait for other members, but does what can be done by now, which for a
  /// collective of much data is to copy or reduce them.
  bool done() const;

  /// Of a collective: whether done() found that all members have begun it, so that it takes no longer than its data do.
  bool under_way() const;

  /// Blocking: until it has ended, at most the communicator's timeout. Errors: those of the blocking call.
  void wait() const;
  /// The same for at most `time`. Returns whether it has ended; after false it goes on.
  bool wait_for(std::chrono::nanoseconds time) const;

  /// Blocking: until one of `requests`, all of one communicator, has ended, well or not; at most `time`. Returns its
  /// index, or nothing after `time` or Communicator::interrupt(). One that takes longer, since it was first waited for
  /// so, than the timeout that the communicator had when it was begun, ends with TimeoutError. Errors: UsageError.
  static std::optional<std::size_t> wait_any(std::span<const Request> requests,
                                             std::chrono::nanoseconds time = std::chrono::nanoseconds::max());
  /// The same for who needs the end of `needed`, one of `requests`, and lets the others go on meanwhile: whoever is
  /// late with that one is reported, as in its wait(), and its deadlocks are found.
  static std::optional<std::size_t> wait_any(std::span<const Request> requests, const Request& needed,
                                             std::chrono::nanoseconds time = std::chrono::nanoseconds::max());

  /// What wait() throws; null while it isn't done, and where it ended well.
  std::exception_ptr exception() const;

  /// Calls `callback` once when it is done: now, or in the call on the communicator or its requests that finds it so.
  /// It may make calls, and throw what those of a broken group throw, nothing else. What it begins is behind all that
  /// was begun, and before the blocking call that it is called in. Errors: UsageError where `callback` is empty.
  void then(std::function<void()> callback) const;

  /// Of a receive that ended well; else as it was made.
  Received received() const;

 private:
  std::shared_ptr<Operation> checked() const;
  static std::optional<std::size_t> wait_any(std::span<const Request> requests, std::chrono::nanoseconds time,
                                             Operation* needed);

  std::shared_ptr<Operation> operation_;
};

}  // namespace retinue
