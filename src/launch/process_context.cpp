#include "retinue/launch/process_context.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "launch/log_options.h"
#include "launch/process_context_impl.h"
#include "os/control_socket.h"
#include "os/futex.h"
#include "os/process_use.h"
#include "process/failure_text.h"
#include "process/job_sweep.h"
#include "retinue/base/error.h"

namespace retinue {

ProcessContext::Impl::Impl(std::shared_ptr<JobMemory> memory, std::uint32_t index, int control_send_fd, LogRequest logs)
    : memory_(std::move(memory)),
      index_(index),
      control_send_fd_(control_send_fd),
      logs_(std::move(logs)),
      owner_(getpid()) {}

ProcessContext::Impl::~Impl() {
  if (!ended_ && owner_ == getpid()) let_go();  // Copies in forks of the owner are none of its business.
}

void ProcessContext::Impl::let_go() {
  record().abandoned.store(1, std::memory_order_seq_cst);
  if (record().state.load(std::memory_order_seq_cst) != ContextRecord::kEnded) return;
  if (!claim_abandoned(record())) return;
  try {
    free_context(*memory_, index_);
  } catch (const TimeoutError&) {
    // A stopped process holds the block table. A destructor must not throw; the record comes back with the job's end.
  }
}

bool ProcessContext::Impl::sleep(std::uint32_t seen, std::chrono::nanoseconds timeout) const {
  auto& guardian = process_slot(*memory_, kGuardianSlot).life.word();
  const std::uint32_t life = guardian.fetch_or(LifeLock::kWaiters, std::memory_order_acq_rel) | LifeLock::kWaiters;
  if ((life & LifeLock::kOwnerDied) != 0) return false;
  const FutexWait waits[] = {{&record().changed, seen}, {&guardian, life}};
  futex_wait_any(waits, timeout);
  return true;
}

void ProcessContext::Impl::fail_without_guardian() {
  for (const OwnChild& child : own_children_) kill(child.pid, SIGKILL);  // The others died with their parent.
  reap_own_children();
  if (memory_->own_slot() == kProgramSlot) sweep_job(*memory_);  // Who would have swept is dead.
  throw SystemError(fmt::format("the job's guardian (pid {}) was killed, and its ranks with it",
                                process_slot(*memory_, kGuardianSlot).pid.load(std::memory_order_relaxed)),
                    ESRCH);
}

bool ProcessContext::Impl::wait_until_ended(const Deadline& deadline) {
  if (ended_) return true;
  for (;;) {
    const std::uint32_t seen = record().changed.load(std::memory_order_acquire);
    if (record().state.load(std::memory_order_acquire) == ContextRecord::kEnded) break;
    if (deadline.passed()) return false;
    if (!sleep(seen, deadline.left(std::chrono::seconds(1)))) fail_without_guardian();
  }
  reap_own_children();
  final_outcomes_ = look();
  const bool failed = std::any_of(final_outcomes_.begin(), final_outcomes_.end(), is_failure);
  if (logs_.is_temporary && !failed)  // The files are gone.
    for (RankOutcome& outcome : final_outcomes_) outcome.stdout_log = outcome.stderr_log = {};
  ended_ = true;
  warn_if_full(logs_);
  free_context(*memory_, index_);
  return true;
}

void ProcessContext::Impl::wait_until_started() const {
  for (;;) {
    const std::uint32_t seen = record().changed.load(std::memory_order_acquire);
    if (record().state.load(std::memory_order_acquire) != ContextRecord::kReserved) return;
    if (!sleep(seen, std::chrono::seconds(1))) return;  // join() says that the guardian is dead.
  }
}

void ProcessContext::Impl::reap_own_children() {
  for (const OwnChild& child : own_children_) {
    int status = 0;
    pid_t reaped = 0;
    rusage usage{};
    while ((reaped = wait4(child.pid, &status, __WALL, &usage)) < 0 && errno == EINTR) continue;
    // A program that waits for any child may have taken the status: what the rank noted itself then stands.
    if (reaped != child.pid) continue;
    ProcessSlot& slot = process_slot(*memory_, record().slots[child.rank]);
    slot.exit_status.store(status, std::memory_order_relaxed);
    slot.use = use_of(usage);
  }
  own_children_.clear();
}

std::vector<RankOutcome> ProcessContext::Impl::look() const {
  std::vector<RankOutcome> outcomes;
  for (std::uint32_t rank = 0; rank < record().nprocs; ++rank)
    outcomes.push_back(outcome_of(process_slot(*memory_, record().slots[rank])));
  for (RankOutcome& outcome : outcomes) add_log_paths(outcome);
  return outcomes;
}

void ProcessContext::Impl::add_log_paths(RankOutcome& outcome) const {
  outcome.stdout_log = logs_.file_of(outcome.local_rank, kStdoutBit);
  outcome.stderr_log = logs_.file_of(outcome.local_rank, kStderrBit);
}

std::vector<RankOutcome> ProcessContext::Impl::outcomes() const {
  if (ended_) return final_outcomes_;
  wait_until_started();
  return look();
}

std::vector<int> ProcessContext::Impl::pids() const {
  std::vector<int> pids;
  for (const RankOutcome& outcome : outcomes()) pids.push_back(outcome.pid);
  return pids;
}

void ProcessContext::Impl::request(ControlKind kind, int signal) const {
  if (ended_) return;
  const ControlMessage message{kind, index_, 0, signal};
  send_message(control_send_fd_, &message, sizeof message);
}

ProcessContext::ProcessContext(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProcessContext::~ProcessContext() = default;
ProcessContext::ProcessContext(ProcessContext&&) noexcept = default;
ProcessContext& ProcessContext::operator=(ProcessContext&&) noexcept = default;

void ProcessContext::join() {
  impl_->wait_until_ended(Deadline::never());
  throw_root_cause(impl_->outcomes());
}

bool ProcessContext::join(std::chrono::nanoseconds timeout) {
  if (!impl_->wait_until_ended(Deadline::after(timeout))) return false;
  throw_root_cause(impl_->outcomes());
  return true;
}

std::vector<int> ProcessContext::pids() const {
  return impl_->pids();
}
std::vector<RankOutcome> ProcessContext::status() const {
  return impl_->outcomes();
}
void ProcessContext::terminate(int first_signal) {
  if (first_signal <= 0 || first_signal > SIGRTMAX)
    throw UsageError(fmt::format("ProcessContext::terminate: no signal {}", first_signal));
  impl_->request(ControlKind::kStop, first_signal);
}

void ProcessContext::signal(int signal) {
  if (signal <= 0 || signal > SIGRTMAX) throw UsageError(fmt::format("ProcessContext::signal: no signal {}", signal));
  impl_->request(ControlKind::kSignal, signal);
}

}  // namespace retinue
