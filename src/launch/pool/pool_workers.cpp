// A pool's workers: their starts, their ends, and who comes in their place.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/memory/context_table.h"
#include "ipc/memory/job_end.h"
#include "ipc/memory/ring_owner.h"
#include "launch/placement/place_ranks.h"
#include "launch/pool/pool_impl.h"
#include "launch/spawn/process_context_impl.h"
#include "launch/tasks/task_server.h"
#include "os/machine/cpus.h"
#include "process/failure/failure_text.h"
#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"

namespace retinue {
namespace {

constexpr int kMostFailedStarts = 3;

}  // namespace

void run_pool_worker(RankContext& context, const WorkerStart& start) {
  const TaskBoard board(start.board);
  if (start.initializer) detail::find_entry(start.initializer.value())(context, start.arguments);
  board.header().ready[start.number].store(1, std::memory_order_release);
  serve_tasks(board, context, {.most_calls = start.most_calls});
}

const ContextRecord& Pool::Impl::record_of(const Worker& worker) const {
  return context_record(*memory_, worker.context.impl().index());
}

std::uint32_t Pool::Impl::free_number() const {
  for (std::uint32_t number = 0;; ++number)
    if (std::none_of(workers_.begin(), workers_.end(), [&](const Worker& each) { return each.number == number; }))
      return number;
}

StartOptions Pool::Impl::start_options(std::uint32_t number) const {
  int threads = options_.threads_per_worker;
  if (threads == 0) threads = std::max(1, usable_cpus() / static_cast<int>(target_.load(std::memory_order_relaxed)));
  return {.name = fmt::format("worker{}", number),
          .start_method = options_.start_method,
          .daemon = options_.daemon,
          .stop = options_.stop,
          .exit_grace = options_.exit_grace,
          .environment = {{0, options_.environment}},
          .directory = options_.directory,
          .threads_per_rank = threads};
}

void Pool::Impl::start_worker() {
  const std::uint32_t number = free_number();
  const WorkerStart start = {.board = board_.blocks(),
                             .number = number,
                             .most_calls = options_.max_tasks_per_child,
                             .initializer = options_.initializer.entry(),
                             .arguments = options_.initializer.arguments().bytes,
                             .references = options_.initializer.arguments().references};
  board_.header().ready[number].store(0, std::memory_order_relaxed);
  ProcessContext context = detail::start_function(
      start_options(number), entry_, {1, {detail::encode<&run_pool_worker, detail::EntryStyle::kRank>(start)}});
  context.impl().mark_retrieved();  // Its end is told as that of its tasks.
  const std::uint32_t slot = context_record(*memory_, context.impl().index()).slots[0];
  const std::uint32_t owner = owner_of(slot, process_slot(*memory_, slot));
  workers_.push_back({std::move(context), number, owner});
}

void Pool::Impl::add_watched(std::vector<FutexWait>& words) {
  words.push_back(process_slot(*memory_, kGuardianSlot).life.watch());
  for (const Worker& worker : workers_) {
    const auto& changed = record_of(worker).changed;
    words.push_back({&changed, changed.load(std::memory_order_acquire)});
  }
}

detail::RunnerNames Pool::Impl::names() const {
  if (options_.retries == 0) return {"worker", "workers", "\n  set PoolOptions::retries to run such tasks again"};
  return {
      "worker", "workers",
      fmt::format("\n  it was started {} times: PoolOptions::retries is {}", options_.retries + 1, options_.retries)};
}

int Pool::Impl::pid_of(const Worker& worker) const {
  if (worker.pid != 0) return worker.pid;
  return process_slot(*memory_, worker.owner % kMaxProcesses).pid.load(std::memory_order_acquire);
}

std::pair<int, int> Pool::Impl::runner_of(std::uint32_t owner) const {
  const auto found =
      std::find_if(workers_.begin(), workers_.end(), [&](const Worker& each) { return each.owner == owner; });
  if (found == workers_.end()) return {};
  return {static_cast<int>(found->number), pid_of(*found)};
}

void Pool::Impl::look_for_guardian() {
  if (!process_slot(*memory_, kGuardianSlot).life.owner_died()) return;
  for (Worker& worker : workers_) worker.context.wait(Time(0));  // Ends what is left of it, and says so.
  throw_if_job_ends(*memory_, "waiting for a pool");
}

void Pool::Impl::reap() {
  look_for_guardian();
  for (std::size_t i = 0; i < workers_.size();) {
    Worker& worker = workers_[i];
    const std::uint32_t seen = record_of(worker).changed.load(std::memory_order_acquire);
    if (!worker.has_begun && board_.header().ready[worker.number].load(std::memory_order_acquire) != 0) {
      worker.has_begun = true;
      failed_starts_ = 0;
    }
    const bool may_have_ended = seen != worker.seen;
    worker.seen = seen;
    const std::optional<RunResult> end = may_have_ended ? worker.context.wait(Time(0)) : std::nullopt;
    if (!end) {
      ++i;
      continue;
    }
    worker.pid = end->outcomes().front().pid;
    on_end(worker, end->outcomes().front());
    workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(i));
    wake_waiters();
  }
  replace_workers();
}

void Pool::Impl::on_end(const Worker& worker, RankOutcome end) {
  end.rank = end.local_rank = static_cast<int>(worker.number);
  recover_tasks_of(worker.owner, end);
  const bool has_begun = board_.header().ready[worker.number].load(std::memory_order_acquire) != 0;
  if (has_begun || state_ == State::kEnding) return;
  // What throws will throw again. What was killed may have been met by chance.
  if (end.end == RankEnd::kRaised || ++failed_starts_ >= kMostFailedStarts) fail(worker, end);
}

void Pool::Impl::fail(const Worker& worker, const RankOutcome& end) {
  const std::string text = fmt::format("the pool failed: a worker failed in its start or initializer\n{}",
                                       failure_text({&end, 1}, fmt::format("worker {}", worker.number)));
  refusal_ = end.end == RankEnd::kRaised ? std::make_exception_ptr(ProcessRaisedException(text, {end}, 0))
                                         : std::make_exception_ptr(ProcessExitedException(text, {end}, 0));
  state_ = State::kEnding;
  fail_all(refusal_);
  stop_workers();
}

void Pool::Impl::stop_workers() {
  for (Worker& worker : workers_) {
    try {
      worker.context.terminate();
    } catch (const Error&) {
      // Without a guardian there are no workers either; waits say so.
    }
  }
}

void Pool::Impl::replace_workers() {
  if (state_ == State::kClosing && under_way() == 0) {
    board_.tasks().close();
    return;
  }
  if (!needs_workers()) return;
  const std::size_t target = target_.load(std::memory_order_relaxed);
  if (workers_.size() <= target && board_.header().to_leave.load(std::memory_order_relaxed) != 0)
    board_.header().to_leave.store(0, std::memory_order_release);
  try {
    while (workers_.size() < target) start_worker();
  } catch (const Error&) {
    // The others go on; the next look tries again.
    if (!workers_.empty()) return;
    fail_all(std::current_exception());
    drop_names();
  }
}

}  // namespace retinue
