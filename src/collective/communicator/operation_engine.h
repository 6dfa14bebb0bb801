#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "collective/communicator/begun_collectives.h"
#include "collective/communicator/one_caller.h"
#include "collective/diagnosis/call_log.h"
#include "collective/messages/messages.h"
#include "collective/session/operation.h"
#include "collective/session/session.h"

namespace retinue {

/// Moves on what a member has begun, messages and collectives, waits for it, and turns its trouble into errors.
///
/// Threads: one at a time, but for interrupt().
class OperationEngine final : public OperationDriver {
 public:
  OperationEngine(Session& session, OneCaller& callers)
      : session_(session),
        callers_(callers),
        log_(session.group()),
        messages_(session, ended_),
        collectives_(session, log_, ended_) {
    session_.waiter().set_background(&messages_);
  }
  /// Ends all that hasn't ended.
  ~OperationEngine();

  Messages& messages() { return messages_; }
  CallLog& log() { return log_; }
  /// Errors: those that broke the group, with which all ends that was begun.
  void check_usable();
  Request start(const CollectiveCall& what, CallSite site);
  /// A message that can be begun.
  template <typename Begun>
  Request start_prepared(std::shared_ptr<Begun> operation) {
    messages_.start(*operation);
    return begun(std::move(operation));
  }

  /// Blocking: until the operation has ended. Throws its error.
  void finish(Operation& operation);
  /// Blocking: until it has ended, well or not, at most `time`. Returns whether it has.
  bool wait_until_done(Operation& operation, std::chrono::nanoseconds time);
  /// Blocking: until all collectives that were begun have ended, well or not, those of callbacks among them.
  void finish_collectives() {
    while (!collectives_.empty()) wait_and_call_back(collectives_.last(), std::chrono::nanoseconds::max());
  }
  /// To be called after a collective: ends all messages if it broke the group, and calls back for those that ended.
  void after_collective();
  void call_back() { ended_.call_back(); }
  /// Makes the wait_any() that is under way, or else the next one, return.
  void interrupt();

  void advance(Operation& operation) override;
  bool wait(Operation& operation, std::chrono::nanoseconds time) override;
  std::optional<std::size_t> wait_any(std::span<Operation* const> operations, Operation* needed,
                                      std::chrono::nanoseconds time) override;
  void drop(Operation& operation) noexcept override;

 private:
  class AnyDone;

  /// Errors: UsageError in a process that was forked from the member's.
  void check_process();
  Request begun(std::shared_ptr<Operation> operation);
  bool wait_and_call_back(Operation& operation, std::chrono::nanoseconds time);
  void move_on();
  void fail_all(const std::exception_ptr& error);
  /// After a wait that didn't end well: if it was in vain, or too long, for one of them, all fail.
  void fail_one_of(std::span<Operation* const> operations, Waiter::Outcome outcome);
  void fail_waiting(Waiter::Outcome outcome, Operation& operation, std::chrono::nanoseconds timeout);
  /// Whether what a begun collective waits for depends on this member.
  bool collectives_await(int rank) const { return !collectives_.empty() && session_.awaits(rank); }
  bool collectives_await_a_lost_member() const;

  Session& session_;
  OneCaller& callers_;
  CallLog log_;
  EndedOperations ended_;
  Messages messages_;
  BegunCollectives collectives_;
  std::atomic<bool> interrupted_ = false;
  unsigned advances_ = 0;
};

}  // namespace retinue
