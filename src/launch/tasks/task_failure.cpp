// What the functions of retinue/launch/detail/task_client.h do, and how failures of tasks are told.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/split.h"
#include "ipc/memory/payload.h"
#include "launch/tasks/task_client.h"
#include "process/failure/failure_text.h"
#include "retinue/base/error.h"
#include "retinue/launch/detail/result_stream.h"
#include "retinue/launch/future.h"

namespace retinue::detail {
namespace {

/// Each line after a line break.
std::string indented(std::string_view text) {
  std::string result;
  for (const std::string_view line : split(text, '\n')) result.append("\n    ").append(line);
  return result;
}

bool is_done(const TaskPtr& task) {
  return task->is_done.load(std::memory_order_acquire);
}

}  // namespace

std::string_view Task::bytes() const {
  return payload ? payload_bytes(*payload.memory(), payload.handle()) : std::string_view(result);
}

std::string name_of(const TaskLabel& label) {
  if (label.count == 0) return fmt::format("a task of {}", label.call);
  if (label.count == 1) return fmt::format("item {} of {}", label.first, label.call);
  return fmt::format("items {} to {} of {}", label.first, label.first + label.count - 1, label.call);
}

std::exception_ptr raised_failure(const Task& task, std::size_t item, const TaskReport& report,
                                  const RunnerNames& names) {
  RankOutcome outcome;
  outcome.rank = outcome.local_rank = task.runner;
  outcome.pid = task.pid;
  outcome.end = RankEnd::kRaised;
  outcome.type = report.type;
  outcome.message = report.message;
  outcome.stack = report.stack;
  outcome.consequence = report.consequence;
  outcome.ended = std::chrono::nanoseconds(report.thrown_ns);
  const TaskLabel label{task.label.call, item, std::min<std::size_t>(task.label.count, 1)};
  const std::string text = fmt::format("{} raised {}: {}\n  in {} {} (pid {}){}", name_of(label), report.type,
                                       report.message, names.one, outcome.rank, outcome.pid, indented(report.stack));
  return std::make_exception_ptr(ProcessRaisedException(text, {outcome}, 0));
}

std::exception_ptr lost_failure(const Task& task, const RankOutcome& end, const RunnerNames& names) {
  const bool is_several = task.label.count > 1;
  const std::string how = end.end == RankEnd::kReturned ? "exited with code 0" : ending_text(end);
  return std::make_exception_ptr(ProcessExitedException(
      fmt::format("lost {}: {} {} (pid {}), which was running {}, {}{}{}", name_of(task.label), names.one, end.rank,
                  end.pid, is_several ? "them" : "it", how,
                  is_several ? "\n  it is not known which of them were done" : "", names.advice) +
          indented(end.stack),
      {end}, 0));
}

TaskPtr submit_task(TaskClient& client, const TaskFunction& function, Encoded payload, const TaskLabel& label) {
  return client.submit(function, std::move(payload), label);
}

std::size_t chunk_size_for(TaskClient& client, std::size_t items) {
  constexpr std::size_t kChunksPerProcess = 4;
  const std::size_t chunks = client.processes() * kChunksPerProcess;
  const std::size_t size = std::max<std::size_t>((items + chunks - 1) / chunks, 1);
  return client.most_calls() == 0 ? size : std::min(size, client.most_calls());
}

std::size_t tasks_ahead(TaskClient& client) {
  return client.processes() * 2 + 1;
}

bool wait_for_all(TaskClient& client, std::span<const TaskPtr> tasks, TaskTime timeout) {
  auto first = tasks.begin();  // All before it are done.
  const auto missing = [&] {
    first = std::find_if_not(first, tasks.end(), is_done);
    return static_cast<std::size_t>(tasks.end() - first - std::count_if(first, tasks.end(), is_done));
  };
  return missing() == 0 || client.wait(missing, timeout);
}

std::size_t wait_for_any(TaskClient& client, std::span<const TaskPtr> tasks, TaskTime timeout) {
  auto found = tasks.end();
  const auto missing = [&]() -> std::size_t {
    found = std::find_if(tasks.begin(), tasks.end(), is_done);
    return found == tasks.end() ? 1 : 0;
  };
  if (missing() != 0) client.wait(missing, timeout);
  return static_cast<std::size_t>(found - tasks.begin());
}

std::string_view result_of(const Task& task) {
  if (task.failure != nullptr) std::rethrow_exception(task.failure);
  return task.bytes();
}

void throw_item_failure(const Task& task, const ItemError& error) {
  std::rethrow_exception(raised_failure(task, task.label.first + error.index, error.report, {"worker", "workers", ""}));
}

void throw_not_in_time(const Task& task, TaskTime timeout) {
  const double seconds = std::chrono::duration<double>(timeout).count();
  throw TimeoutError(fmt::format("{} is not done after {} s: wait again, or longer", name_of(task.label), seconds));
}

void TaskStream::feed() {
  const std::size_t ahead = tasks_ahead(*client_);
  while (!is_fed_ && pending_.size() < ahead) {
    std::size_t items = 0;
    std::optional<Encoded> chunk = feed_(items);
    is_fed_ = !chunk;
    if (is_fed_) return;
    pending_.push_back(submit_task(*client_, function_, std::move(*chunk), {call_, given_, items}));
    given_ += items;
  }
}

/// What the source throws, and that no more tasks are taken, comes after the results that there are.
void TaskStream::feed_if_possible() noexcept {
  try {
    feed();
  } catch (...) {
    is_fed_ = true;
    trouble_ = std::current_exception();
  }
}

TaskPtr TaskStream::next(TaskTime timeout) {
  feed_if_possible();
  if (pending_.empty()) {
    if (trouble_ != nullptr) std::rethrow_exception(std::exchange(trouble_, nullptr));
    return nullptr;
  }
  std::size_t found = 0;
  if (order_ == Order::kOfItems) {
    if (!wait_for_all(*client_, {&pending_.front(), 1}, timeout)) throw_not_in_time(*pending_.front(), timeout);
  } else {
    found = wait_for_any(*client_, pending_, timeout);
    if (found == pending_.size()) throw_not_in_time(*pending_.front(), timeout);
  }
  TaskPtr task = std::move(pending_[found]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(found));
  feed_if_possible();
  return task;
}

}  // namespace retinue::detail
