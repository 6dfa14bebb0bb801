#pragma once

#include <sys/types.h>

#include <bitset>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "os/files/file_descriptor.h"
#include "os/machine/huge_heap.h"
#include "os/machine/memory_kills.h"
#include "process/guardian/child_setup.h"
#include "process/guardian/guarded_context.h"
#include "process/guardian/job_socket.h"
#include "process/guardian/late_reporter.h"
#include "process/guardian/program_report.h"
#include "process/guardian/watcher.h"

namespace retinue {

/// What the program gives its guardian.
struct GuardianSetup {
  std::shared_ptr<JobMemory> memory;
  FileDescriptor control_receive;
  int control_send_fd = -1;      ///< Stays open for the ranks that are forked from here.
  FileDescriptor program_pidfd;  ///< Readable when the program has ended.
  FileDescriptor lifeline;       ///< End of file when the program has ended or executed something else.
  sigset_t signal_mask;          ///< The program's.
  RankMain rank_main = nullptr;
};

/// The process that starts, watches and ends ranks: single-threaded, one loop over events, nothing else.
class Guardian {
 public:
  explicit Guardian(GuardianSetup setup);

  /// Serves until the program ends or says so. Then no process of the job is left.
  [[noreturn]] void run();

 private:
  /// That no request may use up: who cannot look must not think that nobody is there.
  static constexpr std::size_t kLookDescriptors = 4;

  void prepare_process();
  void wait_for_events();
  /// A step of half a millisecond towards `heap_is_huge_`, for moments without ranks and requests.
  void make_forks_cheaper();
  void receive_requests();
  /// `sender`: who sent the message; 0: nobody of this PID namespace.
  using Serve = std::function<void(const ControlMessage&, std::vector<FileDescriptor>& descriptors, pid_t sender)>;
  void for_each_request(const Serve& serve);
  void obey(const ControlMessage& message, std::vector<FileDescriptor>& descriptors, pid_t sender);
  static void end_with_starter(GuardedContext& context, std::uint32_t how);
  static void end_with_program(GuardedContext& context, std::uint32_t how);
  void begin(const ControlMessage& message, std::vector<FileDescriptor>& descriptors, pid_t sender);
  void reap();
  void end_contexts();
  void sweep_orphans();
  /// None: it is gone, or no child of the sender.
  static FileDescriptor pidfd_of_forked(const ControlMessage& message, std::vector<FileDescriptor>& descriptors,
                                        pid_t sender);
  void adopt(GuardedContext& context, const ControlMessage& message, std::vector<FileDescriptor>& descriptors,
             pid_t sender);
  void kill_ranks_not_adopted();
  void refuse(std::uint32_t index, const char* reason);
  /// Lets `retinue ps` and its like speak with the job.
  void serve_job_socket();
  /// Lets the job's clock stand while a rank is debugged.
  void update_timer();
  void stop_contexts_of_dead_parents();
  void end_unsent(std::uint32_t index);
  /// Tells of and frees the ended start `id` where its owner let go of it before.
  void end_abandoned(std::uint32_t index, std::uint32_t id);
  void free_ended_contexts();
  void free_abandoned_ranks();
  bool free_starts_of_members(const GuardedContext& context);
  /// What is left of the job: log forwarders, and all others.
  struct Remains {
    int processes = 0;
    std::vector<pid_t> log_forwarders;
  };
  Remains kill_ranks_and_orphans() const;
  /// Its children, or nothing when it cannot see them: then what ranks left behind is swept by its marks.
  std::vector<pid_t> children_or_sweep() const;
  bool sweep_by_marks() const;
  [[noreturn]] void end_without_program();
  GuardedContext* find(std::uint32_t index);
  std::vector<int> own_fds() const;

  GuardianSetup setup_;
  FileDescriptor child_events_;
  JobSocket job_socket_;
  LateReporter late_reporter_;
  Watcher watcher_;
  MemoryKills memory_kills_;
  ProgramReport program_report_;
  ChildSetup child_setup_;
  std::vector<std::unique_ptr<GuardedContext>> contexts_;
  std::vector<std::uint32_t> unfreed_;  ///< Ended contexts that nobody else frees.
  std::vector<AbandonedRank> abandoned_;
  std::optional<HugeHeap> heap_;
  bool is_end_held_ = false;  ///< A context has ended, but is not published before something is freed.
  bool heap_is_huge_ = false;
  bool had_closures_ = false;
  bool guests_are_reaped_ = true;
  bool shutting_down_ = false;
};

}  // namespace retinue
