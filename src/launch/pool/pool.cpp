#include "retinue/launch/pool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "launch/pool/pool_impl.h"
#include "os/machine/cpus.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"

namespace retinue {
namespace {

constexpr std::uint32_t kRecords = 1024;
/// Longer than helpers may take for the stacks of workers that crashed at their end.
constexpr std::chrono::seconds kHelpersTime{30};

std::size_t checked_size(int processes, const char* what) {
  if (processes < 1 || static_cast<std::uint32_t>(processes) > TaskBoardHeader::kMostWorkers)
    throw UsageError(
        fmt::format("{} of {} processes: it must be 1 to {}", what, processes, TaskBoardHeader::kMostWorkers));
  return static_cast<std::size_t>(processes);
}

std::exception_ptr closed(const char* why) {
  return std::make_exception_ptr(Closed(fmt::format("this Pool accepts no more tasks: {}", why)));
}

}  // namespace

Pool::Impl::Impl(const PoolOptions& options)
    : TaskClient(Runtime::current().memory(), kRecords),
      options_(options),
      entry_(detail::entry_key<&run_pool_worker>()),
      target_(checked_size(options.processes == 0 ? usable_cpus() : options.processes, "a Pool")) {
  if (options.retries < 0)
    throw UsageError(fmt::format("PoolOptions::retries is {}: it must be 0 or greater", options.retries));
  retries_ = options.retries;
  try {
    while (workers_.size() < target_) start_worker();
  } catch (...) {
    end();
    throw;
  }
}

Pool::Impl::~Impl() = default;

void Pool::Impl::dismiss(std::size_t count) {
  board_.header().to_leave.store(static_cast<std::uint32_t>(count), std::memory_order_release);
  // Those that sleep look up; where the queue is full nobody sleeps.
  for (std::size_t i = 0; i < count; ++i)
    if (!board_.tasks().put_word(TaskName().word(), Time(0))) return;
}

void Pool::Impl::resize(std::size_t processes) {
  check_process();
  const Lock lock(mutex_);
  if (refusal_ != nullptr) std::rethrow_exception(refusal_);
  target_.store(processes, std::memory_order_relaxed);
  reap();
  if (workers_.size() > processes) dismiss(workers_.size() - processes);
}

std::vector<int> Pool::Impl::pids() {
  check_process();
  const Lock lock(mutex_);
  reap();
  std::vector<int> pids;
  for (const Worker& worker : workers_)
    if (const int pid = pid_of(worker); pid != 0) pids.push_back(pid);
  return pids;
}

void Pool::Impl::close() {
  check_process();
  const Lock lock(mutex_);
  if (state_ != State::kOpen) return;
  state_ = State::kClosing;
  refusal_ = closed("it was closed");
  collect();
  reap();
}

void Pool::Impl::terminate() {
  check_process();
  const Lock lock(mutex_);
  if (state_ == State::kEnding) return;
  state_ = State::kEnding;
  refusal_ = closed("it was terminated, and tasks that were not done are lost");
  try {
    collect();
  } catch (const Error&) {
    // Without a guardian there is nothing more to come.
  }
  fail_all(refusal_);
  stop_workers();
}

bool Pool::Impl::join(Time timeout) {
  check_process();
  {
    const Lock lock(mutex_);
    if (state_ == State::kOpen)
      throw UsageError("Pool::join: the pool still accepts tasks: call close() or terminate() first");
  }
  return wait([this] { return workers_.empty() ? std::size_t{0} : 1; }, timeout);
}

void Pool::Impl::end() noexcept {
  try {
    terminate();
    join(options_.stop.terminate_wait + options_.stop.kill_wait + kHelpersTime);
  } catch (const Error&) {
    // In a fork of its process, or without a guardian: there is nothing to end.
  }
}

Pool::Pool(const PoolOptions& options) : client_(std::make_shared<Impl>(options)) {}
Pool::~Pool() {
  if (client_ != nullptr) impl().end();
}
Pool::Pool(Pool&&) noexcept = default;
Pool& Pool::operator=(Pool&& other) noexcept {
  if (client_ != nullptr && client_ != other.client_) impl().end();
  client_ = std::move(other.client_);
  return *this;
}

const detail::TaskClientPtr& Pool::client() const {
  if (client_ == nullptr) throw UsageError("this Pool was moved from: use the one it was moved to");
  return client_;
}
Pool::Impl& Pool::impl() const {
  return static_cast<Impl&>(*client());
}

void Pool::resize(int processes) {
  impl().resize(checked_size(processes, "Pool::resize: a Pool"));
}
int Pool::size() const {
  return static_cast<int>(impl().processes());
}
std::vector<int> Pool::pids() const {
  return impl().pids();
}
void Pool::close() {
  impl().close();
}
void Pool::terminate() {
  impl().terminate();
}
void Pool::join() {
  impl().join(Time::max());
}
bool Pool::join(Time timeout) {
  return impl().join(timeout);
}

}  // namespace retinue
