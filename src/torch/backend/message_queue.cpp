#include "torch/backend/message_queue.h"

#include <algorithm>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/ipc/detail/blocked_time.h"
#include "torch/backend/operation_queue.h"

namespace retinue {
namespace {

/// How long who begins messages looks whether they end: it costs less than to wake the helper.
constexpr std::chrono::microseconds kEagerWait{20};

constexpr std::chrono::hours kLongestTimeout{24 * 365};

void wait_eagerly(std::vector<Request> requests) {
  std::erase_if(requests, [](const Request& request) { return request.done(); });
  if (requests.empty()) return;
  const auto end = MessageQueue::Clock::now() + kEagerWait;
  for (auto left = MessageQueue::Clock::duration(kEagerWait); left.count() > 0 && !requests.empty();
       left = end - MessageQueue::Clock::now()) {
    const auto ended = Request::wait_any(requests, left);
    // Nothing: the time is over, or somebody interrupted who had the turn before.
    if (ended) requests.erase(requests.begin() + static_cast<std::ptrdiff_t>(*ended));
  }
}

/// Of a number of such, as long as it lives.
class Counted {
 public:
  explicit Counted(int& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  int& count_;
};

}  // namespace

MessageWork::MessageWork(int rank, const P2POp& message, std::vector<at::Tensor> tensors,
                         std::function<void(const Received&)> after, const std::string& title)
    : ShmWork(rank, message.kind == P2POp::Kind::kSend ? c10d::OpType::SEND : c10d::OpType::RECV, std::move(tensors), 0,
              title),
      message_(message),
      after_(std::move(after)) {}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  using Clock = MessageQueue::Clock;
  const detail::BlockedScope blocked;
  const auto queue = queue_.lock();
  if (!queue || timeout == ::kNoTimeout) {
    if (queue) queue->await_end(*this, std::nullopt);
    return ShmWork::wait();
  }
  const auto end = Clock::now() + std::min<std::chrono::milliseconds>(timeout, kLongestTimeout);
  queue->await_end(*this, end);
  return wait_until(end, timeout);
}

int MessageWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  return received_.source;
}

MessageQueue::~MessageQueue() {
  const auto closed =
      std::make_exception_ptr(Closed("the process group was destroyed before this message was complete"));
  for (const WorkPtr& work : works_) work->complete(closed);
}

void MessageQueue::close() {
  std::thread helper;
  bool ends_now = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ends_now = helper_is_idle_ && !is_acquired_ && !any_under_way_;
    helper = std::move(helper_);
  }
  helper_wake_.notify_one();
  if (helper.joinable()) ends_now ? helper.join() : helper.detach();
}

std::exception_ptr MessageQueue::first_error() const {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

bool MessageQueue::take_turn() {
  std::unique_lock lock(mutex_);
  ++beginners_;
  if (is_acquired_) communicator_.interrupt();
  changed_.wait(lock, [this] { return !is_acquired_; });
  --beginners_;
  is_acquired_ = true;
  return waiters_ > 0;
}

void MessageQueue::begin(std::span<const WorkPtr> works, std::chrono::nanoseconds timeout, const CallSite& site,
                         Then then) {
  std::vector<P2POp> messages;
  for (const WorkPtr& work : works) messages.push_back(work->message_);
  std::exception_ptr misuse;
  std::exception_ptr error;
  std::vector<Request> requests;
  const bool others_wait = take_turn();
  try {
    communicator_.set_timeout(timeout);
    requests = communicator_.batch_isend_irecv(messages, site);
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i]->queue_ = weak_from_this();
      works[i]->place_ = requests_.size();
      requests_.push_back(requests[i]);
      works_.push_back(works[i]);
      requests[i].then([this, work = works[i]] { just_ended_.push_back(work); });
    }
  } catch (const UsageError&) {
    misuse = std::current_exception();
    then = Then::kReturn;
  } catch (...) {
    error = std::current_exception();  // As all later errors, this one comes by the works.
  }
  if (then == Then::kReturn && !others_wait) wait_eagerly(std::move(requests));
  Lock lock(mutex_);
  if (error)
    for (const WorkPtr& work : works) note_end(work, error);
  if (then == Then::kWait) ++waiters_;  // So that no helper is woken.
  end_turn();
  if (then == Then::kWait) --waiters_;
  if (then == Then::kReturn) complete_ended(lock);
  if (misuse) std::rethrow_exception(misuse);
}

void MessageQueue::run(const WorkPtr& work, std::chrono::nanoseconds timeout, const CallSite& site) {
  begin({&work, 1}, timeout, site, Then::kWait);
  {
    Lock lock(mutex_);
    await_end(lock, *work, std::nullopt);
  }
  work->ShmWork::wait();  // Another thread may be about to complete it.
}

/// Gives the turn back. What ended in it is to be completed.
void MessageQueue::end_turn() {
  for (const WorkPtr& work : std::exchange(just_ended_, {})) {
    const Request& request = requests_[work->place_];
    const std::exception_ptr error = request.exception();
    if (!error) {
      const std::lock_guard work_lock(work->mutex_);
      work->received_ = request.received();
    }
    forget(*work);
    note_end(work, error);
  }
  any_under_way_ = !works_.empty();
  is_acquired_ = helper_has_it_ = false;
  changed_.notify_all();
  if (waiters_ == 0 && beginners_ == 0) wake_helper();
}

void MessageQueue::note_end(const WorkPtr& work, const std::exception_ptr& error) {
  work->ended_ = true;
  ended_.push_back({work, error});
  if (error && !first_error_ && ends_the_group(error)) first_error_ = error;
}

/// Whom they call back may begin messages and wait for them, so that the caller may not count as one that waits.
/// Throws what a callback threw, at the end.
void MessageQueue::complete_ended(Lock& lock) {
  if (!ended_.empty() && waiters_ == 0 && beginners_ == 0) wake_helper();
  std::exception_ptr thrown;
  while (!ended_.empty()) {
    auto [work, error] = std::move(ended_.front());
    ended_.pop_front();
    lock.unlock();
    try {
      if (!error) work->after_(work->received_);
    } catch (...) {
      error = std::current_exception();
    }
    work->after_ = nullptr;
    try {
      work->complete(error);
    } catch (...) {
      thrown = std::current_exception();
    }
    lock.lock();
  }
  if (thrown) std::rethrow_exception(thrown);
}

void MessageQueue::forget(const MessageWork& work) {
  const std::size_t place = work.place_;
  std::swap(requests_[place], requests_.back());
  std::swap(works_[place], works_.back());
  works_[place]->place_ = place;
  requests_.pop_back();
  works_.pop_back();
}

/// Takes the turn, which nobody has, until a message ends, somebody wants it, or `end`. `needed`: for whose end the
/// caller waits, if for one's.
void MessageQueue::drive(Lock& lock, const MessageWork* needed, std::optional<Clock::time_point> end) {
  is_acquired_ = true;
  // With an end of its own the wait is nobody's deadlock, and nobody is late for it.
  const auto request = needed != nullptr && !end ? std::optional(requests_[needed->place_]) : std::nullopt;
  lock.unlock();
  const auto time = end ? std::max(*end - Clock::now(), Clock::duration(0)) : Clock::duration::max();
  std::exception_ptr error;
  try {
    request ? Request::wait_any(requests_, *request, time) : Request::wait_any(requests_, time);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  end_turn();
  if (error) std::rethrow_exception(error);
}

void MessageQueue::await_end(const MessageWork& work, std::optional<Clock::time_point> end) {
  Lock lock(mutex_);
  await_end(lock, work, end);
}

void MessageQueue::await_end(Lock& lock, const MessageWork& work, std::optional<Clock::time_point> end) {
  const auto may_go_on = [&] { return work.ended_ || (!is_acquired_ && beginners_ == 0); };
  for (bool in_time = true;; in_time = !end || Clock::now() < *end) {
    complete_ended(lock);
    if (work.ended_ || !in_time) break;
    const Counted counted(waiters_);
    if (helper_has_it_) communicator_.interrupt();
    if (!end)
      changed_.wait(lock, may_go_on);
    else
      in_time = changed_.wait_until(lock, *end, may_go_on);
    if (in_time && !work.ended_) drive(lock, &work, end);
  }
  if (waiters_ == 0 && beginners_ == 0) wake_helper();
}

/// Nobody else moves messages on. A helper that has nothing left to do ends when the queue is closed.
void MessageQueue::wake_helper() {
  if (!any_under_way_ && !stopping_) return;
  if (has_helper_) return helper_wake_.notify_one();
  if (!any_under_way_) return;
  std::thread helper([self = shared_from_this()] { self->help(); });
  has_helper_ = true;
  stopping_ ? helper.detach() : helper_.swap(helper);
}

void MessageQueue::help() {
  Lock lock(mutex_);
  for (;;) {
    helper_is_idle_ = true;
    helper_wake_.wait(lock, [this] {
      if (is_acquired_) return false;
      return any_under_way_ ? beginners_ == 0 && waiters_ == 0 : stopping_;
    });
    helper_is_idle_ = false;
    if (!any_under_way_) break;
    helper_has_it_ = true;
    drive(lock, nullptr, std::nullopt);
    complete_ended(lock);
  }
  has_helper_ = false;
}

}  // namespace retinue
