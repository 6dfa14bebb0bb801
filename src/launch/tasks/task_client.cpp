#include "launch/tasks/task_client.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <tuple>
#include <utility>

#include "ipc/memory/payload.h"
#include "ipc/ring/ring_bell.h"
#include "os/testing/crash_point.h"
#include "process/failure/failure_text.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/interrupt.h"

namespace retinue::detail {
namespace {

using Phase = TaskState::Phase;

/// Between two looks of a sleeper, for what a killed process did not tell.
constexpr std::chrono::milliseconds kLookUp{1000};
/// Where more words would have to be watched than the kernel can.
constexpr std::chrono::milliseconds kFrequentLookUp{20};

}  // namespace

TaskClient::TaskClient(const std::shared_ptr<JobMemory>& memory, std::uint32_t records)
    : memory_(memory), board_(TaskBoard::create(memory, records)), owner_(getpid()), tasks_(records) {
  for (std::uint32_t index = records; index > 0; --index) free_.push_back(index - 1);
}

void TaskClient::check_process() const {
  if (getpid() != owner_)
    throw UsageError(
        fmt::format("this process was forked from the process (pid {}) that started these {}: submit tasks and wait "
                    "for futures in that process",
                    owner_, names().many));
}

std::uint32_t TaskClient::index_of(const TaskFunction& function) {
  if (const auto found = functions_.find(function.thunk); found != functions_.end()) return found->second;
  TaskBoardHeader& header = board_.header();
  const auto index = static_cast<std::uint32_t>(functions_.size());
  if (index == TaskBoardHeader::kMostFunctions)
    throw UsageError(fmt::format("these {} can run at most {} different functions: start others", names().many,
                                 TaskBoardHeader::kMostFunctions));
  const BlockHandle entry = store_payload(*memory_, {encode_value(key_of(function.thunk, function.type)).bytes}, {});
  memory_->hand_over(entry, board_.handle());
  RETINUE_CRASH_POINT();
  header.functions[index] = entry;
  functions_.emplace(function.thunk, index);
  return index;
}

TaskPtr TaskClient::submit(const TaskFunction& function, Encoded arguments, const TaskLabel& label) {
  try {
    return submit_taken(function, arguments, label);
  } catch (...) {
    take_back(arguments);
    throw;
  }
}

TaskPtr TaskClient::submit_taken(const TaskFunction& function, Encoded& arguments, const TaskLabel& label) {
  check_process();
  Lock lock(mutex_);
  if (collect()) wake_waiters();
  reap();
  if (refusal_ == nullptr && free_.empty())
    wait_locked(
        lock, [this] { return missing_room(); }, TaskTime::max());
  if (refusal_ != nullptr) std::rethrow_exception(refusal_);
  auto task = std::make_shared<Task>();
  task->label = label;
  task->function = index_of(function);
  task->retries_left = retries_;
  start(task, arguments);
  if (retries_ > 0) task->arguments = std::move(arguments);
  return task;
}

/// Who found it full waits until a quarter is free, instead of being woken for each.
std::size_t TaskClient::missing_room() const {
  const std::size_t wanted = std::max<std::size_t>(tasks_.size() / 4, 1);
  if (refusal_ != nullptr || free_.size() >= wanted) return 0;
  return std::min(wanted - free_.size(), under_way_);
}

void TaskClient::start(const TaskPtr& task, const Encoded& arguments) {
  const std::uint32_t index = free_.back();
  TaskRecord& record = board_.record(index);
  const std::uint32_t generation = TaskState(record.state.load(std::memory_order_relaxed)).generation();
  record.function = task->function;
  record.calls = std::max<std::size_t>(task->label.count, 1);
  RETINUE_CRASH_POINT();
  board_.store_arguments(record, arguments);
  free_.pop_back();
  tasks_[index] = task;
  ++under_way_;
  RETINUE_CRASH_POINT();
  record.state.store(TaskState(generation, Phase::kQueued).word(), std::memory_order_release);
  RETINUE_CRASH_POINT();
  board_.tasks().put_word(TaskName{index, generation}.word(), TaskTime::max());
}

bool TaskClient::collect() {
  std::array<std::uint64_t, 64> words;
  bool is_any = false;
  for (std::size_t count = words.size(); count == words.size();) {
    count = board_.done().take_words(words, TaskTime(0));
    RETINUE_CRASH_POINT();
    for (std::size_t i = 0; i < count; ++i) is_any |= complete(TaskName::of(words[i]));
  }
  return is_any;
}

bool TaskClient::complete(TaskName name) {
  if (name.index >= tasks_.size()) return false;
  const TaskState state(board_.record(name.index).state.load(std::memory_order_acquire));
  if (state.generation() != name.generation || !state.is_done()) return false;
  complete(name.index, state);
  return true;
}

void TaskClient::complete(std::uint32_t index, TaskState state) {
  if (tasks_[index] == nullptr) {  // It has failed already.
    release(index, state.generation());
    return;
  }
  TaskRecord& record = board_.record(index);
  Task& task = *tasks_[index];
  std::tie(task.runner, task.pid) = runner_of(state.owner());
  try {
    if (record.bytes == TaskRecord::kInPayload) {
      task.payload = SharedBlock::hold(memory_, record.result);
    } else {
      task.result = TaskBoard::bytes_in_room(record);
    }
    if (state.phase() == Phase::kRaised) {
      TaskReport report;
      decode_value(task.bytes(), report);
      task.failure = raised_failure(task, task.label.first, report, names());
    }
  } catch (const std::exception&) {
    task.failure = std::current_exception();  // As of a block table that a stopped process holds.
  }
  finish(index, state.generation());
}

/// What became of the record's task is known; the record is free for another one.
void TaskClient::finish(std::uint32_t index, std::uint32_t generation) {
  const TaskPtr task = release(index, generation);
  task->is_done.store(true, std::memory_order_release);
}

TaskPtr TaskClient::release(std::uint32_t index, std::uint32_t generation) {
  TaskRecord& record = board_.record(index);
  try {
    board_.drop_payloads(record);
  } catch (const Error&) {
    // They go with the board.
  }
  RETINUE_CRASH_POINT();
  record.state.store(TaskState(generation + 1, Phase::kFree).word(), std::memory_order_release);
  RETINUE_CRASH_POINT();
  free_.push_back(index);
  if (tasks_[index] != nullptr) --under_way_;
  return std::exchange(tasks_[index], nullptr);
}

void TaskClient::recover_tasks_of(std::uint32_t owner, const RankOutcome& end) {
  for (std::uint32_t index = 0; index < tasks_.size(); ++index) {
    const TaskState state(board_.record(index).state.load(std::memory_order_acquire));
    if (state.phase() == Phase::kFree || state.owner() != owner) continue;
    if (state.is_done()) complete(index, state);
    if (state.phase() == Phase::kTaken) lose(index, state, end);
  }
}

void TaskClient::lose(std::uint32_t index, TaskState state, const RankOutcome& end) {
  if (tasks_[index] == nullptr) {
    release(index, state.generation());
    return;
  }
  Task& task = *tasks_[index];
  if (task.retries_left > 0) {
    --task.retries_left;
    const TaskPtr again = release(index, state.generation());
    try {
      start(again, again->arguments);
    } catch (const std::exception&) {
      again->failure = std::current_exception();
      again->is_done.store(true, std::memory_order_release);
    }
    return;
  }
  task.failure = lost_failure(task, end, names());
  finish(index, state.generation());
}

void TaskClient::fail_all(const std::exception_ptr& failure) {
  for (std::uint32_t index = 0; index < tasks_.size(); ++index) {
    const TaskPtr task = tasks_[index];
    if (task == nullptr) continue;
    task->failure = failure;
    std::atomic<std::uint64_t>& word = board_.record(index).state;
    std::uint64_t seen = word.load(std::memory_order_acquire);
    const TaskState state(seen);
    const TaskState withdrawn(state.generation(), Phase::kTaken);
    // What runs, or has run, keeps its record until that is over.
    if (state.phase() == Phase::kQueued && word.compare_exchange_strong(seen, withdrawn.word())) {
      RETINUE_CRASH_POINT();
      release(index, state.generation());
    } else {
      tasks_[index] = nullptr;
      --under_way_;
    }
    task->is_done.store(true, std::memory_order_release);
  }
  wake_waiters();
}

void TaskClient::drop_names() {
  TakenMessage taken;
  while (board_.tasks().take(taken, TaskTime(0))) board_.tasks().finish(taken);
}

void TaskClient::wake_waiters() {
  if (sleepers_ > 0) ring_all_parked(board_.done_bell());
}

bool TaskClient::wait(const Missing& missing, TaskTime timeout) {
  check_process();
  Lock lock(mutex_);
  return wait_locked(lock, missing, timeout);
}

/// False when it is time to sleep.
bool TaskClient::spin(Lock& lock) {
  RingWaiter waiter(board_.done_bell());
  lock.unlock();
  bool has_result = false;
  while (!has_result && waiter.spin(spin_budget_)) has_result = board_.has_done();
  if (has_result) RingWaiter::note_success(spin_budget_);
  lock.lock();
  return has_result;
}

void TaskClient::sleep(Lock& lock, std::vector<FutexWait>& watched, const JobDeadline& deadline) {
  const bool is_all = watched.size() <= kMaxFutexWaits;
  watched.resize(std::min(watched.size(), kMaxFutexWaits));
  ++sleepers_;
  lock.unlock();
  futex_wait_any(watched, deadline.left(is_all ? kLookUp : kFrequentLookUp));
  lock.lock();
  --sleepers_;
}

/// Says when to be woken; false where that is now. Pairs with TaskBoard::note_done().
bool TaskClient::is_worth_sleeping(std::uint64_t done_before, std::size_t missing) {
  std::atomic<std::uint64_t>& wake_at = board_.header().wake_at;
  std::uint64_t when = done_before + missing;
  if (sleepers_ > 0) when = std::min(when, wake_at.load(std::memory_order_relaxed));
  wake_at.store(when, std::memory_order_seq_cst);
  return board_.header().done_count.load(std::memory_order_seq_cst) < when;
}

bool TaskClient::wait_locked(Lock& lock, const Missing& missing, TaskTime timeout) {
  constexpr std::size_t kFew = 8;  // More than that are not worth spinning for.
  RingBell& bell = board_.done_bell();
  const JobDeadline deadline = JobDeadline::after(memory_->header(), timeout);
  std::vector<FutexWait> watched;
  for (bool is_sleepy = false;;) {
    watched = {{&bell.rung, bell.rung.load(std::memory_order_seq_cst)}};
    const std::uint64_t done = board_.header().done_count.load(std::memory_order_seq_cst);
    if (is_sleepy) bell.parked.exchange(1, std::memory_order_seq_cst);
    add_watched(watched);  // Before the look at what they stand for.
    if (collect()) wake_waiters();
    reap();
    const std::size_t count = missing();
    if (count == 0) return true;
    if (deadline.passed()) return false;
    if (is_sleepy && is_worth_sleeping(done, count)) {
      sleep(lock, watched, deadline);
      if (is_interrupted()) throw SystemError("waiting for tasks", EINTR);
    }
    is_sleepy = count > kFew || !spin(lock);
  }
}

}  // namespace retinue::detail
