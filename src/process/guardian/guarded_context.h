#pragma once

#include <sys/types.h>

#include <bitset>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/memory/context_table.h"
#include "os/files/file_descriptor.h"
#include "os/machine/memory_kills.h"
#include "os/process/process_use.h"
#include "process/failure/error_file.h"
#include "process/guardian/child_setup.h"
#include "process/guardian/start_request.h"
#include "process/logs/caller_rights.h"
#include "process/logs/log_forwarder.h"

namespace retinue {

/// A rank that SIGKILL did not end in time. It may live for long yet, and its slot with it.
struct AbandonedRank {
  std::uint32_t slot = 0;
  pid_t pid = 0;
  FileDescriptor pidfd;  ///< Adopted ranks only.
  bool ended = false;
};

/// The guardian's view of one context, from its first fork to its end. Every step is a reaction to an event or to a
/// deadline; nothing here blocks.
class GuardedContext {
 public:
  using Clock = std::chrono::steady_clock;

  /// `memory_kills` tells which ranks the kernel killed because memory ran out; `guardian` are this process's. Both
  /// outlive this.
  GuardedContext(std::shared_ptr<JobMemory> memory, std::uint32_t index, MemoryKills& memory_kills,
                 const Credentials& guardian);

  /// What its ranks would have that a caller of credentials `caller` has not; empty: nothing.
  std::string asks_for_more_than(const Credentials& caller) const {
    return request_.attributes.credentials.more_than(caller);
  }

  /// Forks the ranks; in each of them this does not return. A fork that fails ends those that were started and refuses
  /// the context.
  void start(const ChildSetup& setup);
  /// Begins to show the ranks' output, if any is to be shown; before start(). `standard`: the caller's descriptors.
  void start_logs(const std::vector<FileDescriptor>& standard);
  /// Descriptors that no rank should have.
  std::vector<int> log_fds() const { return logs_ ? logs_->fds() : std::vector<int>(); }
  bool owns_log_forwarder(pid_t pid) const { return logs_ && logs_->owns(pid); }
  /// The program is gone and the ranks have been killed: the rest of their output is shown for a short time only.
  void limit_log_drain() {
    if (logs_) logs_->limit_drain();
  }

  /// Takes over a rank that the caller forked, and opens its gate. A pid of 0: the caller could not fork it.
  void adopt(std::uint32_t rank, pid_t pid, FileDescriptor pidfd);

  /// Whether `pid` is one of its ranks, or its helper, that is still to be reaped.
  bool owns(pid_t pid) const;
  /// That process ended with `status`, as wait() gives it.
  void on_exit(pid_t pid, int status, const ProcessUse& use);

  /// Adopted ranks are no children of the guardian: their ends show on these descriptors.
  std::vector<int> adopted_pidfds() const;
  void on_adopted_exit(int pidfd);
  /// Kills those that live, wherever they are between their fork and their end, and returns how many did.
  int kill_adopted() const;

  /// Ends a context whose ranks, or some of them, could not be started, with `reason` as their failure.
  void refuse(const char* reason);
  /// The rank's function returned, and its process is about to exit: when its exit_grace has passed it is stopped.
  void expect_exit(std::uint32_t rank);

  /// Sends a signal to `rank`, or with kAllRanks to all ranks, with its process group if it still runs.
  void send_signal(int signal, std::uint32_t rank) const;

  /// The program ends: ranks that have not ended by themselves in time are stopped, daemonic ones at once.
  void begin_shutdown();
  /// Begins the stop sequence with `first_signal`, if it has not begun. SIGKILL: goes to its last step at
  /// once.
  void stop(int first_signal = SIGTERM);
  /// A rank is debugged: the time until the stop sequence's next step doesn't pass before resume_deadlines().
  void pause_deadlines(Clock::time_point now);
  void resume_deadlines(Clock::time_point now);
  /// Takes the next step of the stop sequence when its time has come.
  void on_time(Clock::time_point now);
  std::optional<Clock::time_point> next_time() const;

  /// Takes the sentinel, which becomes readable at publish_end(), from the end of what came with the request, and keeps
  /// a copy of standard error where failures are told.
  void take_descriptors(std::vector<FileDescriptor>& descriptors);
  /// Descriptors that are the guardian's alone, besides the adopted ranks' and the logs'.
  std::vector<int> own_fds() const { return {sentinel_.get(), standard_error_.get()}; }

  /// All ranks have ended, their stacks are written and their output is shown; what is left is to sweep orphans and to
  /// tell.
  bool is_done() const { return phase_ == Phase::kDone && (!logs_ || logs_->is_done()); }
  void publish_end();

  /// Its abandoned ranks become the caller's to wait for.
  void hand_over_abandoned(std::vector<AbandonedRank>& to);

  bool has_member(std::uint32_t process_slot_index) const;
  std::bitset<kMaxProcesses> member_slots() const;
  StartKind kind() const { return request_.kind; }
  std::uint32_t index() const { return index_; }
  std::uint32_t parent_slot() const { return record().parent_slot; }

 private:
  enum class Phase { kRunning, kTerminating, kKilling, kSymbolizing, kDone };
  struct Member {
    std::uint32_t slot;
    pid_t pid = 0;
    FileDescriptor pidfd;  ///< Adopted ranks only.
    std::string error_file;
    FileStamp error_file_before;
    int stop_signal = 0;  ///< The last that the stop sequence sent it.
    std::optional<Clock::time_point> exit_by;
    std::chrono::nanoseconds cpu_seen{0};  ///< That it had used when `exit_by` was set.
    int extensions = 0;                    ///< Of `exit_by`.
    bool ended = false;
  };

  ContextRecord& record() const { return context_record(*memory_, index_); }
  void note_end(Member& member, int status, const ProcessUse& use);
  void detect_memory_kill(const Member& member, int status) const;
  /// The rank could not be forked: its failure, which ends the others.
  void note_failed_fork(Member& member, const std::string& reason);
  int status_of_adopted(const Member& member) const;
  void signal_group(const Member& member, int signal) const;
  /// Signals a rank as the job's doing.
  void step_ladder(Member& member, int signal) const;
  void kill_all(Clock::time_point now);
  /// SIGKILL did not end it in time: the job goes on without it.
  void abandon(Member& member);
  Clock::duration time_to_exit() const;
  bool extend_exit(Member& member, Clock::time_point now) const;
  /// Makes failures of ranks that returned, but do not exit.
  void stop_lingering(Clock::time_point now);
  bool leaves_time() const { return phase_ == Phase::kRunning || phase_ == Phase::kTerminating; }
  void after_end();
  void begin_symbolizing();
  void release_arguments();
  bool has_failed() const;
  void finish_logs();
  /// Lets a helper see to the records that none has seen to.
  void start_helper_for_rest();
  void on_helper_exit(int status);
  // In the helper: what is left of the ranks' calls where the start, or the job, asked for it.
  CallerRights caller_rights() const { return {request_.attributes.credentials, guardian_}; }
  void add_to_report() const;
  void write_trace() const;
  std::vector<std::uint32_t> slots_by_rank() const;
  void report_failure_without_helper();
  /// What join() would throw, on standard error, or as much of it as is taken; `patience`: with a reader that rests.
  void report_failure(std::chrono::milliseconds patience) const;

  std::shared_ptr<JobMemory> memory_;
  std::uint32_t index_;
  MemoryKills& memory_kills_;
  const Credentials& guardian_;
  StartRequest request_;
  std::vector<Member> members_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
  std::optional<Clock::duration> paused_time_;     ///< Left of the deadline while a rank is debugged.
  std::optional<Clock::time_point> paused_since_;  ///< Since when deadlines don't pass.
  pid_t helper_ = 0;
  std::unique_ptr<LogForwarder> logs_;  ///< Of a context with log files.
  FileDescriptor sentinel_;
  FileDescriptor standard_error_;
  bool has_abandoned_ = false;  ///< Ranks that are not handed over yet.
  bool has_told_ = false;       ///< The failure, to standard error.
};

}  // namespace retinue
