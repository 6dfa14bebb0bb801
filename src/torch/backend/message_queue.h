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
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "retinue/collective/communicator.h"
#include "torch/backend/shm_work.h"

namespace retinue {

class MessageQueue;

/// A message between two ranks on its way.
class MessageWork final : public ShmWork {
 public:
  /// `after` holds the memory of `message`, and runs when it ended well, before the work completes.
  MessageWork(int rank, const P2POp& message, std::vector<at::Tensor> tensors,
              std::function<void(const Received&)> after, const std::string& title);

  /// Moves the group's messages on meanwhile, on this thread.
  bool wait(std::chrono::milliseconds timeout = ::kNoTimeout) override;
  int sourceRank() const override;

 private:
  friend class MessageQueue;

  const P2POp message_;
  std::function<void(const Received&)> after_;
  Received received_;
  // The queue's.
  std::weak_ptr<MessageQueue> queue_;
  std::size_t place_ = 0;  ///< Among those that are under way.
  bool ended_ = false;
};

/// Lets the messages of several threads go on side by side on one communicator.
///
/// One thread at a time has the *turn*: a thread that begins messages, for a moment, or a thread that waits for one of
/// them, and meanwhile moves all of them on. If no thread waits, a helper thread moves them on. A thread that needs the
/// turn interrupts the waiting thread. An OperationQueue makes its calls one after the other; here a message whose peer
/// is late doesn't delay the other messages.
///
/// Threads: any.
class MessageQueue : public std::enable_shared_from_this<MessageQueue> {
 public:
  using WorkPtr = c10::intrusive_ptr<MessageWork>;
  using Clock = std::chrono::steady_clock;

  explicit MessageQueue(Communicator communicator) : communicator_(std::move(communicator)) {}
  ~MessageQueue();

  /// To be called once, last. Messages that were begun go on by themselves, until they are done, a rank is lost or
  /// their timeout passed. Doesn't wait.
  void close();

  /// Begins all of them, in order, or, with a UsageError, none. Doesn't wait for other ranks, but for some tens of
  /// microseconds in which they often come.
  void start(std::span<const WorkPtr> works, std::chrono::nanoseconds timeout, const CallSite& site) {
    begin(works, timeout, site, Then::kReturn);
  }
  /// Blocking: the same for one, and waits for it.
  void run(const WorkPtr& work, std::chrono::nanoseconds timeout, const CallSite& site);

  /// Blocking: until the work has ended, or `end`. It completes at once then, perhaps on another thread.
  void await_end(const MessageWork& work, std::optional<Clock::time_point> end);

  /// The error that made the communicator useless, if any.
  std::exception_ptr first_error() const;

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Then : std::uint8_t { kReturn, kWait };

  struct Ended {
    WorkPtr work;
    std::exception_ptr error;
  };

  void begin(std::span<const WorkPtr> works, std::chrono::nanoseconds timeout, const CallSite& site, Then then);
  void await_end(Lock& lock, const MessageWork& work, std::optional<Clock::time_point> end);
  /// Returns whether others wait for messages meanwhile.
  bool take_turn();
  void end_turn();
  void drive(Lock& lock, const MessageWork* needed, std::optional<Clock::time_point> end);
  void forget(const MessageWork& work);
  void note_end(const WorkPtr& work, const std::exception_ptr& error);
  void complete_ended(Lock& lock);
  void wake_helper();
  void help();

  // Of who has the turn.
  Communicator communicator_;
  std::vector<Request> requests_;  ///< Under way, and
  std::vector<WorkPtr> works_;     ///< their works.
  std::vector<WorkPtr> just_ended_;

  mutable std::mutex mutex_;             ///< Guards all below, and MessageWork::ended_.
  std::condition_variable changed_;      ///< For all but the helper,
  std::condition_variable helper_wake_;  ///< which must not be woken for nothing: that takes longer than a message.
  bool is_acquired_ = false;
  bool helper_has_it_ = false;
  int beginners_ = 0;  ///< Threads that want the turn to begin messages; they come first.
  int waiters_ = 0;    ///< Threads that wait for messages; not while they call back.
  bool any_under_way_ = false;
  std::deque<Ended> ended_;  ///< And not completed. Who waits for one of them does it, if nobody else is about to.
  bool has_helper_ = false;
  bool helper_is_idle_ = false;
  bool stopping_ = false;
  std::exception_ptr first_error_;
  std::thread helper_;
};

}  // namespace retinue
