#include "collective/message_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {

namespace {

/// The end of one of several operations, or an interruption.
class AwaitedOperations final : public Awaited {
 public:
  AwaitedOperations(Messages& messages, std::span<Operation* const> operations,
                    const std::atomic<bool>* interruption = nullptr)
      : messages_(messages), operations_(operations), interruption_(interruption) {}

  bool arrived() override {
    messages_.advance();
    if (interruption_ != nullptr && interruption_->load(std::memory_order_seq_cst)) return true;
    return any([](const Operation& operation) { return operation.done(); });
  }
  bool is_late(int rank) const override {
    return any([rank](const Operation& operation) { return operation.is_late(rank); });
  }
  bool is_in_vain_without(int rank) const override {
    return any([rank](const Operation& operation) { return operation.is_in_vain_without(rank); });
  }

 private:
  template <typename Condition>
  bool any(Condition condition) const {
    return std::any_of(operations_.begin(), operations_.end(),
                       [&](const Operation* operation) { return condition(*operation); });
  }

  Messages& messages_;
  std::span<Operation* const> operations_;
  const std::atomic<bool>* interruption_;
};

/// Asking a request looks for what could be in vain only now and then, because that costs more.
constexpr unsigned kAdvancesPerLook = 64;

}  // namespace

MessageEngine::~MessageEngine() {
  messages_.fail_all(std::make_exception_ptr(Closed("the communicator was destroyed before this ended")));
}

void MessageEngine::check(const P2POp& message) const {
  const bool sends = message.kind == P2POp::Kind::kSend;
  const std::string_view call = sends ? "send" : "recv";
  const bool any = !sends && message.peer == kAnySource;
  if (!any && (message.peer < 0 || message.peer >= session_.size()))
    throw UsageError(fmt::format("{}: rank {} is outside of the group's [0, {})", call, message.peer, session_.size()));
  if (message.tag < 0 && message.tag != detail::kReplyTag && (sends || message.tag != kAnyTag))
    throw UsageError(fmt::format("{}: tag {} is negative", call, message.tag));
}

void MessageEngine::send(ConstBytes data, int destination, int tag, CallSite site) {
  prepare(P2POp::isend(data, destination, tag));
  if (messages_.send_now(data, destination, tag, site)) return messages_.call_back();
  if (destination == session_.rank()) {
    messages_.advance();
    if (!messages_.expects(destination, tag))
      throw UsageError(
          fmt::format("send: rank {} sends {} bytes to itself and has not begun to receive them; use isend or sendrecv",
                      session_.rank(), data.size()));
  }
  SendOperation operation(*this, data, destination, tag, site);
  messages_.start(operation);
  finish(operation);
}

Received MessageEngine::receive(Bytes buffer, std::vector<std::byte>* grows, int source, int tag, CallSite site) {
  prepare(P2POp::irecv(buffer, source, tag));
  if (grows == nullptr)
    if (const auto received = messages_.receive_now(buffer, source, tag)) {
      messages_.call_back();
      return *received;
    }
  ReceiveOperation operation(*this, session_, buffer, source, tag, site);
  operation.grows = grows;
  messages_.start(operation);
  if (source == session_.rank() || (source == kAnySource && session_.size() == 1)) {
    messages_.advance();
    if (messages_.withdraw(operation))
      throw UsageError(fmt::format("recv: rank {} has sent itself no such message, and waits; use irecv or sendrecv",
                                   session_.rank()));
  }
  finish(operation);
  return operation.received;
}

Received MessageEngine::send_and_receive(const P2POp& out, const P2POp& in, CallSite site) {
  check(in);
  prepare(out);
  ReceiveOperation receive(*this, session_, in.buffer, in.peer, in.tag, site);
  SendOperation send(*this, out.data, out.peer, out.tag, site);
  messages_.start(receive);
  messages_.start(send);
  wait_until_done(receive, std::chrono::nanoseconds::max());
  finish(send);
  if (receive.error()) std::rethrow_exception(receive.error());
  return receive.received;
}

std::vector<Request> MessageEngine::start(std::span<const P2POp> messages, CallSite site) {
  for (const P2POp& message : messages) check(message);
  for (const P2POp& message : messages) prepare(message);
  std::vector<Request> requests;
  for (const P2POp& message : messages) requests.push_back(start_prepared(message, site));
  messages_.call_back();
  return requests;
}

Request MessageEngine::start(const P2POp& message, CallSite site) {
  prepare(message);
  Request request = start_prepared(message, site);
  messages_.call_back();
  return request;
}

void MessageEngine::advance(Operation& operation) {
  messages_.advance();
  if (!operation.done() && ++advances_ % kAdvancesPerLook == 0) wait_until_done(operation, std::chrono::nanoseconds(0));
  messages_.call_back();
}

bool MessageEngine::wait(Operation& operation, std::chrono::nanoseconds time) {
  const bool done = wait_until_done(operation, time);
  messages_.call_back();
  return done;
}

std::optional<std::size_t> MessageEngine::wait_any(std::span<Operation* const> operations,
                                                   std::chrono::nanoseconds time) {
  AwaitedOperations awaited(messages_, operations, &interrupted_);
  const JobHeader& header = session_.memory().header();
  JobDeadline deadline = JobDeadline::after(header, time);
  for (const Operation* operation : operations)
    if (operation->deadline && operation->deadline->is_before(deadline)) deadline = *operation->deadline;
  if (session_.failure()) messages_.fail_all(session_.failure());
  messages_.set_awaited(&awaited);
  const Waiter::Outcome outcome = session_.waiter().wait(awaited, deadline);
  messages_.set_awaited(nullptr);
  if (outcome != Waiter::Outcome::kArrived) fail_one_of(operations, outcome);
  interrupted_.store(false, std::memory_order_seq_cst);
  const auto done = std::find_if(operations.begin(), operations.end(), [](const auto* each) { return each->done(); });
  messages_.call_back();
  if (done == operations.end()) return std::nullopt;
  return static_cast<std::size_t>(done - operations.begin());
}

void MessageEngine::after_collective() {
  if (session_.failure()) messages_.fail_all(session_.failure());
  messages_.call_back();
}

void MessageEngine::interrupt() {
  // Who is about to park has noted the bell before it looks for this.
  interrupted_.store(true, std::memory_order_seq_cst);
  session_.waiter().ring_own();
}

void MessageEngine::drop(Operation& operation) noexcept {
  if (messages_.withdraw(operation)) return;
  session_.fail_message(fmt::format("rank {} dropped a message that it had begun and not finished", session_.rank()));
  messages_.fail_all(session_.failure());
}

void MessageEngine::prepare(const P2POp& message) {
  check(message);
  session_.check_usable();
  session_.waiter().note_cpu();
  if (message.kind == P2POp::Kind::kSend) messages_.prepare_send(message.peer);
}

Request MessageEngine::start_prepared(const P2POp& message, CallSite site) {
  if (message.kind == P2POp::Kind::kSend)
    return start_operation(std::make_shared<SendOperation>(*this, message.data, message.peer, message.tag, site));
  return start_operation(
      std::make_shared<ReceiveOperation>(*this, session_, message.buffer, message.peer, message.tag, site));
}

template <typename Begun>
Request MessageEngine::start_operation(std::shared_ptr<Begun> operation) {
  messages_.start(*operation);
  if (!operation->done()) {
    operation->timeout = session_.waiter().timeout();
    operation->deadline = JobDeadline::after(session_.memory().header(), operation->timeout);
  }
  return Request(std::move(operation));
}

void MessageEngine::finish(Operation& operation) {
  wait_until_done(operation, std::chrono::nanoseconds::max());
  messages_.call_back();
  if (operation.error()) std::rethrow_exception(operation.error());
}

bool MessageEngine::wait_until_done(Operation& operation, std::chrono::nanoseconds time) {
  if (!operation.done() && session_.failure()) messages_.fail_all(session_.failure());
  if (operation.done()) return true;
  Operation* const operations[] = {&operation};
  AwaitedOperations awaited(messages_, operations);
  const auto timeout = session_.waiter().timeout();
  if (time > std::chrono::nanoseconds(0)) messages_.set_awaited(&awaited);
  const Waiter::Outcome outcome =
      session_.waiter().wait(awaited, JobDeadline::after(session_.memory().header(), std::min(time, timeout)));
  messages_.set_awaited(nullptr);
  if (outcome == Waiter::Outcome::kArrived) return true;
  if (outcome == Waiter::Outcome::kTimedOut && time < timeout) return false;
  fail_waiting(outcome, operation, timeout);
  return true;
}

void MessageEngine::fail_one_of(std::span<Operation* const> operations, Waiter::Outcome outcome) {
  const auto has_failed = [&](const Operation* operation) {
    if (outcome == Waiter::Outcome::kTimedOut) return operation->deadline && operation->deadline->passed();
    if (outcome == Waiter::Outcome::kPoisoned) return true;
    for (int rank = 0; rank < session_.size(); ++rank)
      if (operation->is_in_vain_without(rank) && session_.waiter().is_lost(rank)) return true;
    return false;
  };
  const auto failed = std::find_if(operations.begin(), operations.end(), has_failed);
  if (failed != operations.end()) fail_waiting(outcome, **failed, (*failed)->timeout);
}

void MessageEngine::fail_waiting(Waiter::Outcome outcome, Operation& operation, std::chrono::nanoseconds timeout) {
  Operation* const operations[] = {&operation};
  try {
    session_.fail_waiting(outcome, AwaitedOperations(messages_, operations), operation.describe(), timeout);
  } catch (...) {
    messages_.fail_all(std::current_exception());
  }
}

}  // namespace retinue
