#include "retinue/launch/process_context.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

#include "launch/runtime/returned_value.h"
#include "launch/runtime/runtime_impl.h"
#include "launch/spawn/log_options.h"
#include "launch/spawn/process_context_impl.h"
#include "os/process/process_look.h"
#include "os/process/process_use.h"
#include "os/sockets/control_socket.h"
#include "os/sync/futex.h"
#include "os/testing/fault_point.h"
#include "process/failure/failure_text.h"
#include "process/guardian/unretrieved_failure.h"
#include "process/trace/failure_trace.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/interrupt.h"

namespace retinue {

namespace {

/// For a standard error that nobody reads.
constexpr auto kReaderTime = std::chrono::seconds(2);

/// Forked ranks that nobody waits for any more: zombies of this process until somebody does.
class DroppedChildren {
 public:
  void add(pid_t pid) {
    const std::lock_guard lock(mutex_);
    pids_.push_back(pid);
  }
  void reap() {
    const std::lock_guard lock(mutex_);
    std::erase_if(pids_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG | __WALL) != 0; });
  }

 private:
  std::mutex mutex_;
  std::vector<pid_t> pids_;
} dropped_children;

}  // namespace

ProcessContext::Impl::Impl(std::shared_ptr<JobMemory> memory, std::uint32_t index, int control_send_fd, LogRequest logs)
    : memory_(std::move(memory)),
      index_(index),
      nprocs_(record().nprocs),
      control_send_fd_(control_send_fd),
      logs_(std::move(logs)),
      owner_(getpid()) {
  dropped_children.reap();
}

ProcessContext::Impl::~Impl() {
  if (!ended_ && owner_ == getpid()) release();  // Copies in forks of the owner are none of its business.
}

std::shared_ptr<CallClient> ProcessContext::Impl::calls_to(int rank) {
  if (rank < 0 || rank >= nprocs())
    throw UsageError(fmt::format("ProcessContext::call: there is no rank {}, only 0 to {}", rank, nprocs() - 1));
  if (const auto found = calls_.find(rank); found != calls_.end()) return found->second;
  if (ended_) throw Closed(fmt::format("ProcessContext::call: rank {} and all others have ended", rank));
  if (process_slot(*memory_, record().slots[rank]).call_state.load(std::memory_order_acquire) != kNoCallsYet)
    throw Closed("ProcessContext::call: calls were ended by end_calls()");
  return calls_.emplace(rank, std::make_shared<CallClient>(memory_, index_, rank)).first->second;
}

void ProcessContext::Impl::end_calls() {
  for (const auto& [rank, calls] : calls_) calls->close();
  if (ended_) return;
  for (std::uint32_t rank = 0; rank < nprocs_; ++rank) refuse_calls(*memory_, record().slots[rank]);
}

void ProcessContext::Impl::detach_calls() {
  for (const auto& [rank, calls] : calls_) calls->detach();
}

void ProcessContext::Impl::release() {
  detach_calls();
  end_calls();
  if (guardian_is_dead()) kill_own_children();  // Nobody else would.
  for (const OwnChild& child : own_children_) dropped_children.add(child.pid);
  const std::uint32_t id = record().id;
  record().abandoned.store(id, std::memory_order_seq_cst);
  if (record().state.load(std::memory_order_seq_cst) != ContextRecord::kEnded) return;
  if (!claim_abandoned(record(), id)) return;
  try {
    report_unretrieved_failure(*memory_, record(), kReaderTime);
    free_context(*memory_, index_);
  } catch (const Error&) {
    // A stopped process holds the block table. A destructor must not throw; the record comes back with the job's end.
  }
}

bool ProcessContext::Impl::sleep(std::uint32_t seen, std::chrono::nanoseconds timeout) const {
  const FutexWait guardian = process_slot(*memory_, kGuardianSlot).life.watch();
  if ((guardian.expected & LifeLock::kOwnerDied) != 0) return false;
  const FutexWait waits[] = {{&record().changed, seen}, guardian};
  futex_wait_any(waits, timeout);
  return true;
}

bool ProcessContext::Impl::guardian_is_dead() const {
  return process_slot(*memory_, kGuardianSlot).life.owner_died();
}

void ProcessContext::Impl::fail_without_guardian() {
  kill_own_children();  // The others died with their parent.
  reap_own_children();
  std::string trouble;
  try {
    if (memory_->own_slot() == kProgramSlot) Runtime::current().impl().sweep();  // Who would have swept is dead.
  } catch (const Error& error) {
    trouble = fmt::format("; {}", error.what());
  }
  if (!is_control_socket(control_send_fd_)) refuse_closed_socket();  // And so ended it, as its lifeline went too.
  throw SystemError(fmt::format("the job's guardian (pid {}) was killed, and its ranks with it{}",
                                process_slot(*memory_, kGuardianSlot).pid.load(std::memory_order_relaxed), trouble),
                    ESRCH);
}

void ProcessContext::Impl::kill_own_children() const {
  for (const OwnChild& child : own_children_) {
    // A program that waits for any child may have reaped it: its pid could be another's.
    siginfo_t unused{};
    if (waitid(P_PID, static_cast<id_t>(child.pid), &unused, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0)
      ::kill(child.pid, SIGKILL);
  }
}

bool ProcessContext::Impl::wait_until_ended(const Deadline& deadline) {
  for (;;) {
    if (ended_) return true;  // Another thread may have seen it end.
    const std::uint32_t seen = record().changed.load(std::memory_order_acquire);
    if (record().state.load(std::memory_order_acquire) == ContextRecord::kEnded) break;
    if (deadline.passed()) {
      fail_if_guardian_is_dead();
      return false;
    }
    if (!sleep(seen, deadline.left(std::chrono::seconds(1)))) fail_without_guardian();
    if (detail::is_interrupted()) throw SystemError("waiting for ranks to end", EINTR);
  }
  const std::lock_guard lock(end_mutex_);
  if (ended_) return true;
  reap_own_children();
  detach_calls();
  result_ = look_at_the_end();
  ended_ = true;
  warn_if_full(logs_);
  free_context(*memory_, index_);
  return true;
}

void ProcessContext::Impl::wait_until_started() const {
  for (;;) {
    const std::uint32_t seen = record().changed.load(std::memory_order_acquire);
    if (ended_ || record().state.load(std::memory_order_acquire) != ContextRecord::kReserved) return;
    if (!sleep(seen, std::chrono::seconds(1))) return;  // join() says that the guardian is dead.
  }
}

void ProcessContext::Impl::reap_own_children() {
  for (const OwnChild& child : own_children_) {
    ProcessSlot& slot = process_slot(*memory_, record().slots[child.rank]);
    if (slot.abandoned_in != 0) {  // The kernel may keep it for ever.
      dropped_children.add(child.pid);
      continue;
    }
    int status = 0;
    pid_t reaped = 0;
    rusage usage{};
    while ((reaped = wait4(child.pid, &status, __WALL, &usage)) < 0 && errno == EINTR) continue;
    // A program that waits for any child may have taken the status: what the rank noted itself then stands.
    if (reaped != child.pid) continue;
    // One that had exited by itself, as the guardian found, was only met by the stop sequence on its way out.
    const bool had_exited = WIFEXITED(slot.exit_status.load(std::memory_order_relaxed));
    if (!had_exited || !WIFSIGNALED(status)) slot.exit_status.store(status, std::memory_order_relaxed);
    slot.use = use_of(usage);
  }
  own_children_.clear();
}

std::vector<RankOutcome> ProcessContext::Impl::look() const {
  std::vector<RankOutcome> outcomes;
  for (std::uint32_t rank = 0; rank < record().nprocs; ++rank)
    outcomes.push_back(outcome_of(process_slot(*memory_, record().slots[rank])));
  for (RankOutcome& outcome : outcomes) {
    add_log_paths(outcome);
    if (outcome.end == RankEnd::kRunning) outcome.message = standstill_of(outcome.pid);
  }
  return outcomes;
}

void ProcessContext::Impl::add_log_paths(RankOutcome& outcome) const {
  outcome.stdout_log = logs_.file_of(outcome.local_rank, kStdoutBit);
  outcome.stderr_log = logs_.file_of(outcome.local_rank, kStderrBit);
}

RunResult ProcessContext::Impl::look_at_the_end() const {
  std::vector<RankOutcome> outcomes = look();
  const bool failed = std::any_of(outcomes.begin(), outcomes.end(), is_failure);
  if (logs_.is_temporary && !failed)  // The files are gone.
    for (RankOutcome& outcome : outcomes) outcome.stdout_log = outcome.stderr_log = {};
  const std::string trace = failed ? failure_trace_folder(logs_, *memory_, record().id) : "";
  if (has_failure_trace(trace))
    for (RankOutcome& outcome : outcomes) outcome.trace = trace;
  std::vector<detail::ReturnedValue> returned;
  for (std::uint32_t rank = 0; rank < nprocs_; ++rank) {
    const bool is_whole = outcomes[rank].end == RankEnd::kReturned;
    const ProcessSlot& slot = process_slot(*memory_, record().slots[rank]);
    returned.push_back(is_whole ? load_returned(memory_, slot) : detail::ReturnedValue());
  }
  return {std::move(outcomes), std::move(returned)};
}

std::vector<RankOutcome> ProcessContext::Impl::outcomes() const {
  if (!ended_) wait_until_started();
  const std::lock_guard lock(end_mutex_);
  if (ended_) return result_->outcomes();
  std::vector<RankOutcome> outcomes = look();
  if (std::ranges::any_of(outcomes, is_failure)) mark_retrieved();
  return outcomes;
}

std::vector<int> ProcessContext::Impl::pids() const {
  std::vector<int> pids;
  for (const RankOutcome& outcome : outcomes()) pids.push_back(outcome.pid);
  return pids;
}

void ProcessContext::Impl::request(ControlKind kind, int signal, std::uint32_t rank) const {
  const std::lock_guard lock(end_mutex_);
  if (ended_) return;
  const ControlMessage message{kind, index_, rank, signal};
  send_message(control_send_fd_, &message, sizeof message);
}

detail::TaskClientPtr ProcessContext::calls_to(int rank) const {
  return impl("call").calls_to(rank);
}
void ProcessContext::end_calls() {
  impl("end_calls").end_calls();
}

ProcessContext::ProcessContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessContext::~ProcessContext() = default;
ProcessContext::ProcessContext(ProcessContext&&) noexcept = default;
ProcessContext& ProcessContext::operator=(ProcessContext&&) noexcept = default;

ProcessContext::Impl& ProcessContext::impl(const char* function) const {
  if (impl_ == nullptr)
    throw UsageError(
        fmt::format("ProcessContext::{}: this context was moved from: use the one it was moved to", function));
  return *impl_;
}

void ProcessContext::join() {
  join(std::chrono::nanoseconds::max());
}

bool ProcessContext::join(std::chrono::nanoseconds timeout) {
  if (!impl("join").wait_until_ended(Deadline::after(timeout))) return false;
  throw_root_cause(impl_->outcomes());
  return true;
}

RunResult ProcessContext::wait() {
  return *wait(std::chrono::nanoseconds::max());
}

std::optional<RunResult> ProcessContext::wait(std::chrono::nanoseconds timeout) {
  if (!impl("wait").wait_until_ended(Deadline::after(timeout))) return std::nullopt;
  return impl_->result();
}

std::vector<int> ProcessContext::pids() const {
  return impl("pids").pids();
}
std::vector<RankOutcome> ProcessContext::status() const {
  return impl("status").outcomes();
}
namespace {

void check_signal(int signal, const char* function) {
  if (signal <= 0 || signal > SIGRTMAX)
    throw UsageError(fmt::format("ProcessContext::{}: {} is not a signal", function, signal));
}

}  // namespace

void ProcessContext::terminate(int first_signal) {
  check_signal(first_signal, "terminate");
  impl("terminate").request(ControlKind::kStop, first_signal);
}

void ProcessContext::kill() {
  impl("kill").request(ControlKind::kStop, SIGKILL);
}

void ProcessContext::signal(int signal) {
  check_signal(signal, "signal");
  fault_point("program.signal");
  impl("signal").request(ControlKind::kSignal, signal);
}

void ProcessContext::signal(int signal, int rank) {
  check_signal(signal, "signal");
  const int nprocs = impl("signal").nprocs();
  if (rank < 0 || rank >= nprocs)
    throw UsageError(fmt::format("ProcessContext::signal: there is no rank {}, only 0 to {}", rank, nprocs - 1));
  impl_->request(ControlKind::kSignal, signal, static_cast<std::uint32_t>(rank));
}

}  // namespace retinue
