#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "retinue/collective/communicator.h"
#include "torch/backend/shm_work.h"

namespace retinue {

/// Whether the communicator is of no use after this.
bool ends_the_group(const std::exception_ptr& error);

/// What is asked of a communicator, so that it can be done later and on another thread.
struct QueuedCall {
  CollectiveCall call;
  CallSite site{"", 0};
  std::chrono::nanoseconds timeout{};
  std::function<void(Communicator&)> body = nullptr;  ///< In place of `call`: any calls, which wait for their ends.
};

/// Makes calls on a communicator in the order in which they were given, on the caller's thread wherever that needs no
/// wait, and on a helper thread where an asynchronous call would have to wait for other ranks.
///
/// Threads: any.
class OperationQueue : public std::enable_shared_from_this<OperationQueue> {
 public:
  explicit OperationQueue(Communicator communicator) : communicator_(std::move(communicator)) {}

  /// To be called once, last. An operation that waits for other ranks goes on by itself, until it is done, a rank is
  /// lost or its timeout passed; those behind it end with Closed. Doesn't wait.
  void close();

  /// Blocking: until the call is done. Errors: as the communicator's.
  void run(const QueuedCall& call);

  /// The error that made the communicator useless, if any.
  std::exception_ptr first_error() const;

  /// Returns without waiting for other ranks, but for some tens of microseconds in which they often arrive, where each
  /// has a CPU. `after` runs when the call succeeded and before the work completes.
  void start(const QueuedCall& call, c10::intrusive_ptr<ShmWork> work, std::function<void()> after);

 private:
  struct Operation {
    QueuedCall call;
    c10::intrusive_ptr<ShmWork> work;
    std::function<void()> after;
    std::optional<Request> begun = std::nullopt;  ///< By the caller.
    bool is_on_its_way = false;  ///< It was, or would have been if this communicator could begin calls.
  };

  bool try_acquire_communicator();
  void release_communicator(const std::exception_ptr& error);
  void push(Operation operation);
  void end(Operation& operation, std::exception_ptr error);
  bool has_front_to_make() const {
    return !operations_.empty() && (!is_acquired_ || operations_.front().is_on_its_way);
  }
  void make_front(std::unique_lock<std::mutex>& lock);
  /// Makes what was started, up to the end of `work`, on this thread, as far as no other is at it: who waits needs no
  /// helper, and no switch between threads. May return before the end of `work`.
  void help_until_done(ShmWork& work);
  void help();

  Communicator communicator_;
  mutable std::mutex mutex_;  ///< Guards all below.
  std::condition_variable wake_;
  std::deque<Operation> operations_;
  bool is_acquired_ = false;  ///< A thread is using the communicator.
  bool stopping_ = false;
  std::exception_ptr first_error_;
  std::thread helper_;
};

}  // namespace retinue
