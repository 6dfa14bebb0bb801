#include "collective/communicator/operation_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "retinue/base/error.h"

namespace retinue {

/// The end of one of several operations, or an interruption, or the end of a time of the wait's own.
class OperationEngine::AnyDone final : public Awaited {
 public:
  enum class Until { kDone, kOwnDeadline };

  AnyDone(OperationEngine& engine, std::span<Operation* const> operations, Until until = Until::kDone)
      : engine_(engine),
        operations_(operations),
        needed_(operations.size() == 1 ? operations.front() : nullptr),
        until_(until) {}
  /// `needed`: the one for whose end this is, or null.
  AnyDone(OperationEngine& engine, std::span<Operation* const> operations, Operation* needed,
          const std::atomic<bool>& interruption)
      : engine_(engine), operations_(operations), needed_(needed), interruption_(&interruption) {}

  bool arrived() override {
    engine_.move_on();
    if (interruption_ != nullptr && interruption_->load(std::memory_order_seq_cst)) return true;
    return any([](const Operation& operation) { return operation.done(); });
  }
  bool is_late(int rank) const override {
    return engine_.collectives_await(rank) ||
           any([rank](const Operation& operation) { return operation.is_late(rank); });
  }
  bool is_reported_late(int rank) const override {
    if (engine_.collectives_await(rank)) return true;
    if (needed_ != nullptr) return needed_->is_reported_late(rank);
    return any([rank](const Operation& operation) { return operation.is_reported_late(rank); });
  }
  bool is_in_vain_without(int rank) const override {
    return engine_.collectives_await(rank) ||
           any([rank](const Operation& operation) { return operation.is_in_vain_without(rank); });
  }
  Needs needs() const override {
    if (needed_ == nullptr) return Needs::kUnknown;
    // Collectives that were begun go on in this wait: others may wait for those, and not for what it is for.
    if (!engine_.collectives_.empty() && engine_.collectives_.find(*needed_) == nullptr) return Needs::kUnknown;
    return needed_->needs_only_one() ? Needs::kAnyLate : Needs::kEachLate;
  }
  bool is_for_message() const override { return needed_ != nullptr && engine_.collectives_.find(*needed_) == nullptr; }
  bool has_own_deadline() const override { return until_ == Until::kOwnDeadline; }
  std::string describe() const override {
    if (needed_ != nullptr) return needed_->describe();
    return operations_.empty() ? "" : operations_.front()->describe();
  }

 private:
  template <typename Condition>
  bool any(Condition condition) const {
    return std::any_of(operations_.begin(), operations_.end(),
                       [&](const Operation* operation) { return condition(*operation); });
  }

  OperationEngine& engine_;
  std::span<Operation* const> operations_;
  Operation* needed_;  ///< Null: any of them is as good.
  const std::atomic<bool>* interruption_ = nullptr;
  Until until_ = Until::kDone;
};

namespace {

/// Asking a request looks for what could be in vain only now and then, because that costs more.
constexpr unsigned kAdvancesPerLook = 64;

}  // namespace

OperationEngine::~OperationEngine() {
  if (session_.is_in_a_fork()) return;
  if (!collectives_.empty()) session_.abandon(collectives_.first().name(), "destroyed its communicator");
  fail_all(std::make_exception_ptr(Closed("the communicator was destroyed before this operation finished")));
}

Request OperationEngine::start(const CollectiveCall& what, CallSite site) {
  auto operation = std::make_shared<CollectiveOperation>(*this, session_, what, site);
  check_usable();
  collectives_.start(*operation);
  if (session_.failure()) fail_all(session_.failure());
  call_back();
  return begun(std::move(operation));
}

void OperationEngine::check_usable() {
  try {
    session_.check_usable();
  } catch (...) {
    if (session_.failure()) fail_all(session_.failure());
    throw;
  }
}

bool OperationEngine::collectives_await_a_lost_member() const {
  for (int rank = 0; rank < session_.size(); ++rank)
    if (collectives_await(rank) && session_.waiter().is_lost(rank)) return true;
  return false;
}

Request OperationEngine::begun(std::shared_ptr<Operation> operation) {
  operation->timeout = session_.waiter().timeout();
  return Request(std::move(operation));
}

void OperationEngine::move_on() {
  messages_.advance();
  collectives_.advance();
  if (session_.failure()) fail_all(session_.failure());
}

void OperationEngine::fail_all(const std::exception_ptr& error) {
  messages_.fail_all(error);
  collectives_.fail_all(error);
}

void OperationEngine::check_process() {
  if (session_.is_in_a_fork()) session_.check_usable();
}

void OperationEngine::advance(Operation& operation) {
  check_process();
  const OneCaller::Scope scope(callers_, "Request::done of the operation started", operation.site());
  move_on();
  if (!operation.done() && ++advances_ % kAdvancesPerLook == 0) wait_until_done(operation, std::chrono::nanoseconds(0));
  call_back();
}

bool OperationEngine::wait(Operation& operation, std::chrono::nanoseconds time) {
  const OneCaller::Scope scope(callers_, "Request::wait for the operation started", operation.site());
  return wait_and_call_back(operation, time);
}

bool OperationEngine::wait_and_call_back(Operation& operation, std::chrono::nanoseconds time) {
  check_process();
  const bool done = wait_until_done(operation, time);
  call_back();
  return done;
}

std::optional<std::size_t> OperationEngine::wait_any(std::span<Operation* const> operations, Operation* needed,
                                                     std::chrono::nanoseconds time) {
  check_process();
  const OneCaller::Scope scope(callers_, "Request::wait_any for the operation started", operations.front()->site());
  AnyDone awaited(*this, operations, needed, interrupted_);
  const JobHeader& header = session_.memory().header();
  JobDeadline deadline = JobDeadline::after(header, time);
  for (Operation* operation : operations) {
    // The clock is read here, and not for each that is begun.
    if (!operation->deadline) operation->deadline = JobDeadline::after(header, operation->timeout);
    if (operation->deadline->is_before(deadline)) deadline = *operation->deadline;
  }
  if (session_.failure()) fail_all(session_.failure());
  messages_.set_awaited(&awaited);
  const Waiter::Outcome outcome = session_.waiter().wait(awaited, deadline);
  messages_.set_awaited(nullptr);
  if (outcome != Waiter::Outcome::kArrived) fail_one_of(operations, outcome);
  interrupted_.store(false, std::memory_order_seq_cst);
  const auto done = std::find_if(operations.begin(), operations.end(), [](const auto* each) { return each->done(); });
  call_back();
  if (done == operations.end()) return std::nullopt;
  return static_cast<std::size_t>(done - operations.begin());
}

void OperationEngine::after_collective() {
  if (session_.failure()) fail_all(session_.failure());
  call_back();
}

void OperationEngine::interrupt() {
  // Who is about to park has noted the bell before it looks for this.
  interrupted_.store(true, std::memory_order_seq_cst);
  session_.waiter().ring_own();
}

void OperationEngine::drop(Operation& operation) noexcept {
  if (messages_.withdraw(operation)) return;
  if (session_.is_in_a_fork()) return;
  if (const CollectiveOperation* const collective = collectives_.find(operation))
    session_.abandon(collective->name(), "dropped its request");
  else
    session_.drop_message(operation.describe());
  fail_all(session_.failure());
}

void OperationEngine::finish(Operation& operation) {
  wait_and_call_back(operation, std::chrono::nanoseconds::max());
  if (operation.error()) std::rethrow_exception(operation.error());
}

bool OperationEngine::wait_until_done(Operation& operation, std::chrono::nanoseconds time) {
  if (!operation.done() && session_.failure()) fail_all(session_.failure());
  if (operation.done()) return true;
  Operation* const operations[] = {&operation};
  const auto timeout = session_.waiter().timeout();
  AnyDone awaited(*this, operations, time < timeout ? AnyDone::Until::kOwnDeadline : AnyDone::Until::kDone);
  if (time > std::chrono::nanoseconds(0)) messages_.set_awaited(&awaited);
  const Waiter::Outcome outcome =
      session_.waiter().wait(awaited, JobDeadline::after(session_.memory().header(), std::min(time, timeout)));
  messages_.set_awaited(nullptr);
  if (outcome == Waiter::Outcome::kArrived) return true;
  if (outcome == Waiter::Outcome::kTimedOut && time < timeout) return false;
  fail_waiting(outcome, operation, timeout);
  return true;
}

void OperationEngine::fail_one_of(std::span<Operation* const> operations, Waiter::Outcome outcome) {
  const auto has_failed = [&](const Operation* operation) {
    if (outcome == Waiter::Outcome::kTimedOut) return operation->deadline && operation->deadline->passed();
    if (outcome == Waiter::Outcome::kPoisoned || outcome == Waiter::Outcome::kInterrupted) return true;
    if (collectives_await_a_lost_member()) return true;
    for (int rank = 0; rank < session_.size(); ++rank)
      if (operation->is_in_vain_without(rank) && session_.waiter().is_lost(rank)) return true;
    return false;
  };
  const auto failed = std::find_if(operations.begin(), operations.end(), has_failed);
  if (failed != operations.end()) fail_waiting(outcome, **failed, (*failed)->timeout);
}

void OperationEngine::fail_waiting(Waiter::Outcome outcome, Operation& operation, std::chrono::nanoseconds timeout) {
  Operation* const operations[] = {&operation};
  try {
    const bool is_by_collective = outcome == Waiter::Outcome::kLost && collectives_await_a_lost_member();
    if (is_by_collective || collectives_.find(operation) != nullptr) {
      if (collectives_.has_published()) session_.fail_begun(outcome, timeout);
      session_.fail_waiting(outcome, AnyDone(*this, operations), collectives_.first().describe(), timeout);
    }
    session_.fail_waiting(outcome, AnyDone(*this, operations), operation.describe(), timeout);
  } catch (...) {
    fail_all(std::current_exception());
  }
}

}  // namespace retinue
