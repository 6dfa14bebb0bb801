#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ipc/memory/job_clock.h"
#include "launch/tasks/task_board.h"
#include "os/sync/futex.h"
#include "retinue/launch/detail/task_client.h"
#include "retinue/process/failure.h"

namespace retinue::detail {

struct Task {
  TaskLabel label;
  std::uint32_t function = 0;
  Encoded arguments;  ///< Kept where it may have to be started again.
  int retries_left = 0;
  std::atomic<bool> is_done = false;  ///< What follows is written before, and no more.
  int runner = 0;                     ///< Who ran it: worker or rank.
  int pid = 0;
  std::string result;
  SharedBlock payload;  ///< In which the result lies if it is not in `result`.
  std::exception_ptr failure;

  std::string_view bytes() const;
};

/// Who runs a client's tasks, in messages.
struct RunnerNames {
  const char* one;     ///< "worker".
  const char* many;    ///< "workers".
  std::string advice;  ///< For who wants what was lost to run again; begins with a line break.
};

/// The side of a board that gives tasks. Who runs them, and what becomes of the dead among those, derived classes know.
///
/// Whoever waits collects what is done, for all. Locks: `mutex_` guards everything; it is not held while asleep.
class TaskClient {
 public:
  using Lock = std::unique_lock<std::mutex>;

  virtual ~TaskClient() = default;

  TaskPtr submit(const TaskFunction& function, Encoded arguments, const TaskLabel& label);
  /// How many more tasks must be done at least; 0: it is enough. Called with the lock held.
  using Missing = std::function<std::size_t()>;
  /// Blocking: until nothing is missing. False: not in time.
  bool wait(const Missing& missing, TaskTime timeout);
  virtual std::size_t processes() = 0;
  virtual std::size_t most_calls() const { return 0; }
  virtual RunnerNames names() const = 0;

 protected:
  TaskClient(const std::shared_ptr<JobMemory>& memory, std::uint32_t records);

  /// Looks for ends of those who run tasks; with the lock. Errors: what every wait shall throw.
  virtual void reap() = 0;
  /// Words whose change is worth a look.
  virtual void add_watched(std::vector<FutexWait>& words) = 0;
  /// Number and pid.
  virtual std::pair<int, int> runner_of(std::uint32_t owner) const = 0;

  bool wait_locked(Lock& lock, const Missing& missing, TaskTime timeout);
  /// Takes in what is done. True if it was anything.
  bool collect();
  /// Of a process that is gone: takes in what it did; what it had in hand is started again, or has this failure.
  void recover_tasks_of(std::uint32_t owner, const RankOutcome& end);
  /// All that is not done fails, and does not begin any more.
  void fail_all(const std::exception_ptr& failure);
  /// Where nobody is there who would: takes the names of withdrawn tasks out of the queue.
  void drop_names();
  /// Tasks that are neither done nor failed.
  std::size_t under_way() const { return under_way_; }
  /// Errors: UsageError in a fork of the process that made it.
  void check_process() const;
  /// Makes other threads that wait here look again.
  void wake_waiters();

  std::shared_ptr<JobMemory> memory_;
  TaskBoard board_;
  std::mutex mutex_;
  int retries_ = 0;
  std::exception_ptr refusal_;  ///< Why no more tasks are taken.

 private:
  /// `arguments` may be taken back by who calls it, if it throws.
  TaskPtr submit_taken(const TaskFunction& function, Encoded& arguments, const TaskLabel& label);
  std::uint32_t index_of(const TaskFunction& function);
  void start(const TaskPtr& task, const Encoded& arguments);
  bool complete(TaskName name);
  void complete(std::uint32_t index, TaskState state);
  void lose(std::uint32_t index, TaskState state, const RankOutcome& end);
  void finish(std::uint32_t index, std::uint32_t generation);
  TaskPtr release(std::uint32_t index, std::uint32_t generation);
  std::size_t missing_room() const;
  bool spin(Lock& lock);
  void sleep(Lock& lock, std::vector<FutexWait>& watched, const JobDeadline& deadline);
  bool is_worth_sleeping(std::uint64_t done_before, std::size_t missing);

  pid_t owner_;
  std::atomic<std::uint32_t> spin_budget_ = 0;
  std::vector<TaskPtr> tasks_;       ///< By record.
  std::vector<std::uint32_t> free_;  ///< Records.
  std::size_t under_way_ = 0;
  std::size_t sleepers_ = 0;
  std::map<EntryThunk, std::uint32_t> functions_;
};

/// A ProcessRaisedException.
std::exception_ptr raised_failure(const Task& task, std::size_t item, const TaskReport& report,
                                  const RunnerNames& names);
/// A ProcessExitedException: it was in hand of one that ended.
std::exception_ptr lost_failure(const Task& task, const RankOutcome& end, const RunnerNames& names);
/// "items 3 to 7 of Pool::map".
std::string name_of(const TaskLabel& label);

}  // namespace retinue::detail
