#include "torch/message_queue.h"

#include <algorithm>
#include <utility>

#include "retinue/base/error.h"
#include "torch/operation_queue.h"

namespace retinue {
namespace {

/// How long who begins messages looks whether they end: it costs less than to wake the helper.
constexpr std::chrono::microseconds kEagerWait{20};

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

}  // namespace

MessageWork::MessageWork(int rank, const P2POp& message, std::vector<at::Tensor> tensors,
                         std::function<void(const Received&)> after)
    : ShmWork(rank, message.kind == P2POp::Kind::kSend ? c10d::OpType::SEND : c10d::OpType::RECV, std::move(tensors),
              0),
      message_(message),
      after_(std::move(after)) {}

bool MessageWork::wait(std::chrono::milliseconds timeout) {
  std::optional<MessageQueue::Clock::time_point> end;
  if (timeout != ::kNoTimeout) end = MessageQueue::Clock::now() + timeout;
  if (const auto queue = queue_.lock()) queue->await_end(*this, end);
  return ShmWork::wait(timeout);
}

int MessageWork::sourceRank() const {
  const std::lock_guard lock(mutex_);
  return received_.source;
}

MessageQueue::~MessageQueue() {
  const auto closed = std::make_exception_ptr(Closed("the process group was destroyed before this message ended"));
  for (const WorkPtr& work : works_) work->complete(closed);
}

void MessageQueue::close() {
  std::thread helper;
  bool goes_on = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    goes_on = taken_ || any_under_way_;
    helper = std::move(helper_);
  }
  helper_wake_.notify_one();
  if (helper.joinable()) goes_on ? helper.detach() : helper.join();
}

std::exception_ptr MessageQueue::first_error() const {
  const std::lock_guard lock(mutex_);
  return first_error_;
}

bool MessageQueue::take_turn() {
  std::unique_lock lock(mutex_);
  ++beginners_;
  if (taken_) communicator_.interrupt();
  changed_.wait(lock, [this] { return !taken_; });
  --beginners_;
  taken_ = true;
  return waiters_ > 0;
}

void MessageQueue::begin(std::span<const WorkPtr> works, std::chrono::nanoseconds timeout, const CallSite& site,
                         int waiters) {
  std::vector<P2POp> messages;
  for (const WorkPtr& work : works) messages.push_back(work->message_);
  std::exception_ptr misuse;
  std::exception_ptr error;
  const bool others_wait = take_turn();
  try {
    communicator_.set_timeout(timeout);
    std::vector<Request> requests = communicator_.batch_isend_irecv(messages, site);
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i]->queue_ = weak_from_this();
      works[i]->place_ = requests_.size();
      requests_.push_back(requests[i]);
      works_.push_back(works[i]);
      requests[i].then([this, work = works[i]] { just_ended_.push_back(work); });
    }
    if (waiters == 0 && !others_wait) wait_eagerly(std::move(requests));
  } catch (const UsageError&) {
    misuse = std::current_exception();
  } catch (...) {
    error = std::current_exception();  // As all later errors, this one comes by the works.
  }
  {
    const std::lock_guard lock(mutex_);
    if (!misuse) waiters_ += waiters;
    for (const WorkPtr& work : works) work->ended_ = error != nullptr;
  }
  end_turn();
  if (misuse) std::rethrow_exception(misuse);
  for (const WorkPtr& work : works)
    if (error) work->complete(error);
}

void MessageQueue::run(const WorkPtr& work, std::chrono::nanoseconds timeout, const CallSite& site) {
  begin({&work, 1}, timeout, site, 1);
  {
    std::unique_lock lock(mutex_);
    await_end(lock, *work, std::nullopt);
  }
  work->ShmWork::wait(::kNoTimeout);  // Another thread may have ended it.
}

/// Gives the turn back, and ends what ended in it.
void MessageQueue::end_turn() {
  struct Ended {
    WorkPtr work;
    std::exception_ptr error;
  };
  std::vector<Ended> ended;
  for (WorkPtr& work : std::exchange(just_ended_, {})) {
    const Request& request = requests_[work->place_];
    ended.push_back({work, request.exception()});
    if (!ended.back().error) {
      const std::lock_guard lock(work->mutex_);
      work->received_ = request.received();
    }
    forget(*work);
  }
  {
    const std::lock_guard lock(mutex_);
    taken_ = false;
    any_under_way_ = !works_.empty();
    for (const Ended& each : ended) {
      each.work->ended_ = true;
      if (each.error && !first_error_ && ends_the_group(each.error)) first_error_ = each.error;
    }
    if (waiters_ == 0 && beginners_ == 0) wake_helper();
  }
  changed_.notify_all();
  // Whom they call back may begin messages.
  for (auto& [work, error] : ended) {
    try {
      if (!error) work->after_(work->received_);
    } catch (...) {
      error = std::current_exception();
    }
    work->after_ = nullptr;
    work->complete(error);
  }
}

void MessageQueue::forget(const MessageWork& work) {
  const std::size_t place = work.place_;
  std::swap(requests_[place], requests_.back());
  std::swap(works_[place], works_.back());
  works_[place]->place_ = place;
  requests_.pop_back();
  works_.pop_back();
}

/// Takes the turn, which nobody has, until a message ends, somebody wants it, or `end`.
void MessageQueue::drive(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point> end) {
  taken_ = true;
  lock.unlock();
  const auto time = end ? std::max(*end - Clock::now(), Clock::duration(0)) : Clock::duration::max();
  Request::wait_any(requests_, time);
  end_turn();
  lock.lock();
}

void MessageQueue::await_end(const MessageWork& work, std::optional<Clock::time_point> end) {
  std::unique_lock lock(mutex_);
  ++waiters_;
  await_end(lock, work, end);
}

/// With one of `waiters_`, which it takes back.
void MessageQueue::await_end(std::unique_lock<std::mutex>& lock, const MessageWork& work,
                             std::optional<Clock::time_point> end) {
  const auto may_go_on = [&] { return work.ended_ || (!taken_ && beginners_ == 0); };
  while (!work.ended_) {
    if (helper_has_it_) communicator_.interrupt();
    if (!end)
      changed_.wait(lock, may_go_on);
    else if (!changed_.wait_until(lock, *end, may_go_on))
      break;
    if (work.ended_ || (end && Clock::now() >= *end)) break;
    drive(lock, end);
  }
  if (--waiters_ == 0) wake_helper();
}

/// Nobody waits, and messages may be under way.
void MessageQueue::wake_helper() {
  if (!any_under_way_) return;
  if (has_helper_) return helper_wake_.notify_one();
  has_helper_ = true;
  helper_ = std::thread([self = shared_from_this()] { self->help(); });
  if (stopping_) helper_.detach();
}

void MessageQueue::help() {
  std::unique_lock lock(mutex_);
  for (;;) {
    helper_wake_.wait(lock, [this] {
      if (taken_ || beginners_ > 0 || waiters_ > 0) return false;
      return any_under_way_ || stopping_;
    });
    if (!any_under_way_) break;
    helper_has_it_ = true;
    drive(lock, std::nullopt);
    helper_has_it_ = false;
  }
  has_helper_ = false;
}

}  // namespace retinue
