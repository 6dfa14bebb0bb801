#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "collective/messages.h"
#include "collective/operation.h"
#include "collective/session.h"

namespace retinue {

/// Begins messages of a member, waits for them, and turns their trouble into errors.
///
/// Threads: one at a time, but for interrupt().
class MessageEngine final : public Engine {
 public:
  explicit MessageEngine(Session& session) : session_(session), messages_(session) {
    session_.waiter().set_background(&messages_);
  }
  /// Ends all that hasn't ended.
  ~MessageEngine();

  void send(ConstBytes data, int destination, int tag, CallSite site);
  /// `grows`: null, or what becomes as large as the message, in place of `buffer`.
  Received receive(Bytes buffer, std::vector<std::byte>* grows, int source, int tag, CallSite site);
  Received send_and_receive(const P2POp& out, const P2POp& in, CallSite site);
  Request start(const P2POp& message, CallSite site);
  std::vector<Request> start(std::span<const P2POp> messages, CallSite site);

  /// To be called after a collective: ends all messages if it broke the group, and calls back for those that ended.
  void after_collective();
  /// Makes the wait_any() that is under way, or else the next one, return.
  void interrupt();

  void advance(Operation& operation) override;
  bool wait(Operation& operation, std::chrono::nanoseconds time) override;
  std::optional<std::size_t> wait_any(std::span<Operation* const> operations, std::chrono::nanoseconds time) override;
  void drop(Operation& operation) noexcept override;

 private:
  void check(const P2POp& message) const;
  /// All that can go wrong before a message is begun.
  void prepare(const P2POp& message);
  Request start_prepared(const P2POp& message, CallSite site);
  template <typename Begun>
  Request start_operation(std::shared_ptr<Begun> operation);
  void finish(Operation& operation);
  bool wait_until_done(Operation& operation, std::chrono::nanoseconds time);
  /// After a wait that didn't end well: if it was in vain, or too long, for one of them, all fail.
  void fail_one_of(std::span<Operation* const> operations, Waiter::Outcome outcome);
  void fail_waiting(Waiter::Outcome outcome, Operation& operation, std::chrono::nanoseconds timeout);

  Session& session_;
  Messages messages_;
  std::atomic<bool> interrupted_ = false;
  unsigned advances_ = 0;
};

}  // namespace retinue
