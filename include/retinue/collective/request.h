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

/// A collective or message that was begun and may not have ended yet. It progresses while this member waits in, or
/// queries, any call or request of its communicator; there is no helper thread.
///
/// Until it is done, its buffers and the communicator must stay in place, nobody may read what it writes, and nobody
/// may write what it reads. Dropping the last copy of a receive to which no message has come cancels it. Dropping any
/// other request that isn't done breaks the group, and the other members get CollectiveMismatch. Copies refer to the
/// same request.
/// Threads: as the communicator, one at a time, but not always the same thread.
class [[nodiscard]] Request {
 public:
  Request() = default;
  explicit Request(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// Returns whether it has ended, successfully or not. Doesn't wait for other members, but does the work that is
  /// possible by now; for a collective of much data, that is copying or reducing them.
  bool done() const;

  /// For a collective: returns whether done() found that all members have begun it, so that only its data take time.
  bool under_way() const;

  /// Waits. Blocking: until it has ended, at most the communicator's timeout. Errors: as the blocking call.
  void wait() const;
  /// Waits at most `time`. Returns whether it has ended; if not, it continues.
  bool wait_for(std::chrono::nanoseconds time) const;

  /// Waits until one of `requests`, all of one communicator, has ended, successfully or not; at most `time`. Returns
  /// its index, or nothing after `time` or Communicator::interrupt(). A request ends with TimeoutError if, counted from
  /// the first wait of this kind for it, it takes longer than the communicator's timeout at its beginning. Errors:
  /// UsageError.
  static std::optional<std::size_t> wait_any(std::span<const Request> requests,
                                             std::chrono::nanoseconds time = std::chrono::nanoseconds::max());
  /// Does the same for a caller that needs the end of `needed`, one of `requests`, while the others continue. Ranks
  /// late with `needed` are reported, as in its wait(), and its deadlocks are found.
  static std::optional<std::size_t> wait_any(std::span<const Request> requests, const Request& needed,
                                             std::chrono::nanoseconds time = std::chrono::nanoseconds::max());

  /// Returns the exception that wait() throws; null if it isn't done or ended successfully.
  std::exception_ptr exception() const;

  /// Calls `callback` once when it is done: now, or in the call on the communicator or its requests that finds it done.
  /// The callback may make calls and throw the errors of a broken group's calls, but nothing else. What it begins comes
  /// after all that was begun, and before the blocking call in which it runs. Errors: UsageError if `callback` is
  /// empty.
  void then(std::function<void()> callback) const;

  /// Returns the result of a receive that ended successfully; otherwise a default-constructed value.
  Received received() const;

 private:
  std::shared_ptr<Operation> checked() const;
  static std::optional<std::size_t> wait_any(std::span<const Request> requests, std::chrono::nanoseconds time,
                                             Operation* needed);

  std::shared_ptr<Operation> operation_;
};

}  // namespace retinue
