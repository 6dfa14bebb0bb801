#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ipc/memory/job_clock.h"
#include "ipc/records/flight_recorder.h"
#include "retinue/base/error.h"
#include "retinue/collective/request.h"

namespace retinue {

class Operation;

/// Who moves operations on: a communicator. Ends them all before it is destroyed.
class OperationDriver {
 public:
  OperationDriver();
  OperationDriver(const OperationDriver&) = delete;
  OperationDriver& operator=(const OperationDriver&) = delete;

  /// No other's in this process, ever.
  std::uint64_t number() const { return number_; }
  /// Whether the one of that number was not destroyed yet. Threads: any.
  static bool is_there(std::uint64_t number);

  /// Does what can be done without waiting; where that is nothing for long, looks whether it is in vain.
  virtual void advance(Operation& operation) = 0;
  /// Waits for the operation, at most `time`. Returns whether it has ended, well or not.
  virtual bool wait(Operation& operation, std::chrono::nanoseconds time) = 0;
  /// Waits until one of them has ended, at most `time` or until it is interrupted. Returns its index. `needed`: the one
  /// for whose end this is, or null.
  virtual std::optional<std::size_t> wait_any(std::span<Operation* const> operations, Operation* needed,
                                              std::chrono::nanoseconds time) = 0;
  /// The operation was started, is about to be destroyed, and isn't done.
  virtual void drop(Operation& operation) noexcept = 0;

 protected:
  ~OperationDriver();

 private:
  const std::uint64_t number_;
};

/// A call in progress. Started and completed once, by its engine.
class Operation : public std::enable_shared_from_this<Operation> {
 public:
  Operation(OperationDriver& engine, CallSite site) : engine_(&engine), engine_number_(engine.number()), site_(site) {}
  /// Those that are made call drop_unless_done() in theirs, while they can be asked what they are.
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Whether it can't go on without this member.
  virtual bool is_late(int rank) const = 0;
  virtual bool is_in_vain_without(int rank) const { return is_late(rank); }
  /// Whether others are told so.
  virtual bool is_reported_late(int rank) const { return is_late(rank); }
  /// Whether it waits for no member to begin it any more.
  virtual bool is_under_way() const { return done(); }
  /// Whether one of those that are late would do.
  virtual bool needs_only_one() const { return false; }
  /// As "waits to send 8 bytes to rank 1 (tag 0) at train.cpp:12".
  virtual std::string describe() const = 0;

  bool done() const { return done_; }
  const std::exception_ptr& error() const { return error_; }
  /// There as long as this isn't done.
  OperationDriver& engine() const { return *engine_; }
  std::uint64_t engine_number() const { return engine_number_; }
  /// Where it was begun.
  const CallSite& site() const { return site_; }

  void start() { started_ = true; }
  void complete(std::exception_ptr error) {
    error_ = std::move(error);
    done_ = true;
    if (error_ == nullptr)
      recorded.end();
    else
      recorded.fail();
  }

  void add_callback(std::function<void()> callback) { callbacks_.push_back(std::move(callback)); }
  bool has_callbacks() const { return !callbacks_.empty(); }
  /// To be called where nobody is in the middle of anything: callbacks may make calls.
  void call_back() noexcept {
    if (!done_) return;
    for (const auto& callback : std::exchange(callbacks_, {})) {
      try {
        callback();
      } catch (const PeerLost&) {
        // Their group is broken, and tells so in its every call.
      } catch (const CollectiveMismatch&) {
      } catch (const TimeoutError&) {
      }
    }
  }

  RecordedCallEnd recorded;             ///< Of a message.
  Received received;                    ///< Of a receive.
  std::chrono::nanoseconds timeout{};   ///< Of one that is waited for with others, and
  std::optional<JobDeadline> deadline;  ///< when it is over, once it was.

 protected:
  void drop_unless_done() noexcept {
    if (started_ && !done_) engine_->drop(*this);
  }

 private:
  OperationDriver* engine_;
  std::uint64_t engine_number_;
  CallSite site_;
  bool started_ = false;
  bool done_ = false;
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
};

/// Operations that ended and have somebody to call back, until nobody is in the middle of anything.
class EndedOperations {
 public:
  void note(Operation& operation) {
    // Nobody holds one that ends because it is dropped: nobody is called back.
    if (auto held = operation.weak_from_this().lock(); held && held->has_callbacks())
      operations_.push_back(std::move(held));
  }
  void call_back() {
    while (!operations_.empty())
      for (const auto& operation : std::exchange(operations_, {})) operation->call_back();
  }

 private:
  std::vector<std::shared_ptr<Operation>> operations_;
};

}  // namespace retinue
