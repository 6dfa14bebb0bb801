#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ipc/context_table.h"
#include "os/file_descriptor.h"
#include "process/rank_birth.h"
#include "process/start_request.h"

namespace retinue {

/// The guardian's view of one context, from its first fork to its end. Every step is a reaction to an event or to a
/// deadline; nothing here blocks.
class GuardedContext {
 public:
  using Clock = std::chrono::steady_clock;

  GuardedContext(std::shared_ptr<JobMemory> memory, std::uint32_t index);

  /// Forks the ranks; in each of them this does not return. A fork that fails ends those that were started and refuses
  /// the context.
  void start(const RankBirth& birth);
  /// Takes over a rank that the requester forked, and opens its gate. A pid of 0: the requester could not fork it.
  void adopt(std::uint32_t rank, pid_t pid, FileDescriptor pidfd);

  /// Whether `pid` is one of its ranks, or its clerk, that is still to be reaped.
  bool owns(pid_t pid) const;
  /// That process ended with `status`, as wait() gives it.
  void on_exit(pid_t pid, int status);

  /// Adopted ranks are no children of the guardian: their ends show on these descriptors.
  std::vector<int> adopted_pidfds() const;
  void on_adopted_exit(int pidfd);

  /// Sends a signal to `rank`, or with kAllRanks to all ranks, with its process group if it still runs.
  void send_signal(int signal, std::uint32_t rank) const;

  /// The program ends: ranks that have not ended by themselves in time are stopped, daemonic ones at once.
  void let_finish();
  /// Begins the stop ladder, if it has not begun.
  void stop();
  /// Goes to the ladder's last step.
  void kill_ranks();
  /// Takes the next step of the ladder when its time has come.
  void on_time(Clock::time_point now);
  std::optional<Clock::time_point> next_time() const { return deadline_; }

  /// Takes the sentinel, which becomes readable at publish_end(), from the end of what came with the request, and keeps
  /// a copy of standard error where failures are told.
  void tie(std::vector<FileDescriptor>& descriptors);
  /// Descriptors that are the guardian's alone, besides the adopted ranks'.
  std::vector<int> own_fds() const { return {sentinel_.get(), standard_error_.get()}; }

  /// All ranks have ended and their stacks are written; what is left is to sweep orphans and to tell.
  bool is_done() const { return phase_ == Phase::kDone; }
  void publish_end();

  bool has_member(std::uint32_t process_slot_index) const;
  StartKind kind() const { return request_.kind; }
  std::uint32_t index() const { return index_; }
  std::uint32_t parent_slot() const { return record().parent_slot; }

 private:
  enum class Phase { kRunning, kTerminating, kKilling, kSymbolizing, kDone };
  struct Member {
    std::uint32_t slot;
    pid_t pid = 0;
    FileDescriptor pidfd;  ///< Adopted ranks only.
    bool ended = false;
  };

  ContextRecord& record() const { return context_record(*memory_, index_); }
  void note_end(Member& member, int status);
  /// The rank could not be forked: its failure, which ends the others.
  void note_unborn(Member& member, const std::string& reason);
  int status_of_adopted(const Member& member) const;
  void signal_group(const Member& member, int signal) const;
  /// Signals a rank as the job's doing.
  void step_ladder(const Member& member, int signal) const;
  void after_end();
  void begin_symbolizing();
  /// In the clerk: what join() would throw, on standard error.
  void tell_failure() const;

  std::shared_ptr<JobMemory> memory_;
  std::uint32_t index_;
  StartRequest request_;
  std::vector<Member> members_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
  pid_t clerk_ = 0;
  FileDescriptor sentinel_;
  FileDescriptor standard_error_;
};

}  // namespace retinue
