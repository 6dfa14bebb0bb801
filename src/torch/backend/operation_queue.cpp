#include "torch/backend/operation_queue.h"

#include <utility>

#include "retinue/base/error.h"
#include "retinue/ipc/detail/blocked_time.h"

namespace retinue {
namespace {

/// How long a caller of an asynchronous operation looks whether the others are there already.
constexpr std::chrono::microseconds kEagerSpin{20};

void call_now(Communicator& communicator, const QueuedCall& call) {
  communicator.set_timeout(call.timeout);
  if (call.body) return call.body(communicator);
  communicator.run(call.call, call.site);
}

bool all_come_soon(const Request& request) {
  constexpr int kLooksAtTheClock = 16;  ///< One in so many: it takes as long as asking.
  const auto end = std::chrono::steady_clock::now() + kEagerSpin;
  for (int i = 1; !request.done() && !request.under_way(); ++i)
    if (i % kLooksAtTheClock == 0 && std::chrono::steady_clock::now() > end) return false;
  return true;
}

Request begin(Communicator& communicator, const QueuedCall& call) {
  communicator.set_timeout(call.timeout);
  return communicator.start(call.call, call.site);
}

}  // namespace

bool ends_the_group(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerLost&) {
    return true;
  } catch (const DataDivergence&) {
    return false;
  } catch (const CollectiveMismatch&) {
    return true;
  } catch (const TimeoutError&) {
    return true;
  } catch (...) {
    return false;
  }
}

void OperationQueue::close() {
  std::deque<Operation> dropped;
  std::thread helper;
  bool helper_waits_for_ranks = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    while (!operations_.empty() && !operations_.back().is_on_its_way) {
      dropped.push_front(std::move(operations_.back()));
      operations_.pop_back();
    }
    helper = std::move(helper_);
    helper_waits_for_ranks = is_acquired_ || !operations_.empty();
  }
  wake_.notify_all();
  // A callback on the helper may have been the last to need this.
  const bool is_helper = helper.get_id() == std::this_thread::get_id();
  if (helper.joinable()) helper_waits_for_ranks || is_helper ? helper.detach() : helper.join();
  const auto closed = std::make_exception_ptr(Closed("the process group was destroyed before this operation began"));
  for (Operation& operation : dropped) operation.work->complete(closed);
}

std::exception_ptr OperationQueue::first_error() const {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

bool OperationQueue::try_acquire_communicator() {
  const std::lock_guard lock(mutex_);
  if (is_acquired_ || !operations_.empty()) return false;
  return is_acquired_ = true;
}

void OperationQueue::release_communicator(const std::exception_ptr& error) {
  bool others_wait = false;
  {
    const std::lock_guard lock(mutex_);
    is_acquired_ = false;
    if (error && !first_error_ && ends_the_group(error)) first_error_ = error;
    others_wait = !operations_.empty();
  }
  if (others_wait) wake_.notify_one();
}

void OperationQueue::run(const QueuedCall& call) {
  if (!try_acquire_communicator()) {
    auto work = c10::make_intrusive<ShmWork>(-1, c10d::OpType::UNKNOWN, std::vector<at::Tensor>{}, 0);
    push({.call = call, .work = work, .after = nullptr});
    work->wait();
    return;
  }
  try {
    call_now(communicator_, call);
  } catch (...) {
    release_communicator(std::current_exception());
    throw;
  }
  release_communicator(nullptr);
}

void OperationQueue::start(const QueuedCall& call, c10::intrusive_ptr<ShmWork> work, std::function<void()> after) {
  const detail::BlockedScope blocked;
  Operation operation{.call = call, .work = std::move(work), .after = std::move(after)};
  if (!try_acquire_communicator()) return push(std::move(operation));
  operation.is_on_its_way = true;
  if (!communicator_.shares_memory() || operation.call.body) return push(std::move(operation));
  std::exception_ptr error;
  try {
    operation.begun.emplace(begin(communicator_, operation.call));
    const bool is_done = communicator_.is_crowded() ? operation.begun->done() : all_come_soon(*operation.begun);
    if (!is_done) return push(std::move(operation));
  } catch (...) {
    error = std::current_exception();
  }
  end(operation, error);
}

/// Ends an operation on this thread, which has the communicator, and gives that back.
void OperationQueue::end(Operation& operation, std::exception_ptr error) {
  try {
    if (!error && operation.begun) operation.begun->wait();
    if (!error && !operation.begun) call_now(communicator_, operation.call);
    if (!error && operation.after) operation.after();
  } catch (...) {
    error = std::current_exception();
  }
  operation.begun.reset();
  operation.after = nullptr;
  // Before those who wait go on: their next call shall find the communicator free.
  release_communicator(error);
  operation.work->complete(error);
}

void OperationQueue::push(Operation operation) {
  operation.work->help_by([queue = weak_from_this()](ShmWork& work) {
    if (const auto still_there = queue.lock()) still_there->help_until_done(work);
  });
  {
    const std::lock_guard lock(mutex_);
    // One that was begun is ahead of all that came while it was tried here.
    if (operation.is_on_its_way)
      operations_.push_front(std::move(operation));
    else
      operations_.push_back(std::move(operation));
    if (!helper_.joinable()) helper_ = std::thread([self = shared_from_this()] { self->help(); });
  }
  wake_.notify_one();
}

/// An operation that was begun, at the head, brings the communicator along.
void OperationQueue::make_front(std::unique_lock<std::mutex>& lock) {
  Operation operation = std::move(operations_.front());
  operations_.pop_front();
  is_acquired_ = true;
  lock.unlock();
  end(operation, nullptr);
  lock.lock();
}

void OperationQueue::help_until_done(ShmWork& work) {
  std::unique_lock lock(mutex_);
  while (!work.isCompleted() && has_front_to_make()) make_front(lock);
}

void OperationQueue::help() {
  std::unique_lock lock(mutex_);
  do {
    wake_.wait(lock, [this] { return operations_.empty() ? stopping_ : has_front_to_make(); });
    if (!operations_.empty()) make_front(lock);
  } while (!operations_.empty() || !stopping_);
}

}  // namespace retinue
