#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ipc/memory/context_table.h"
#include "launch/tasks/call_client.h"
#include "process/guardian/start_request.h"
#include "retinue/base/deadline.h"
#include "retinue/launch/process_context.h"
#include "retinue/launch/runtime.h"

namespace retinue {

class ProcessContext::Impl {
 public:
  Impl(std::shared_ptr<JobMemory> memory, std::uint32_t index, int control_send_fd, LogRequest logs);
  ~Impl();

  /// True when all ranks have ended.
  bool wait_until_ended(const Deadline& deadline);
  /// Outcomes by rank: final ones when all have ended, else a look at the ranks as they are.
  std::vector<RankOutcome> outcomes() const;
  /// When all have ended.
  const RunResult& result() const { return *result_; }
  std::vector<int> pids() const;
  int nprocs() const { return static_cast<int>(nprocs_); }
  void request(ControlKind kind, int signal = 0, std::uint32_t rank = kAllRanks) const;
  std::uint32_t index() const { return index_; }
  /// Its failure need not be told any more: the caller knows it, or will see to it.
  void mark_retrieved() const { record().retrieved.store(1, std::memory_order_relaxed); }

  /// Errors: UsageError for a wrong rank; Closed for a context that has ended.
  std::shared_ptr<CallClient> calls_to(int rank);
  void end_calls();

  /// Ends what is left of the ranks, and throws SystemError.
  [[noreturn]] void fail_without_guardian();
  void fail_if_guardian_is_dead() {
    if (guardian_is_dead()) fail_without_guardian();
  }

  /// Ranks that this process forked itself and must reap.
  void add_own_child(std::uint32_t rank, pid_t pid) {
    if (pid > 0) own_children_.push_back({rank, pid});
  }

 private:
  struct OwnChild {
    std::uint32_t rank;
    pid_t pid;
  };

  ContextRecord& record() const { return context_record(*memory_, index_); }
  std::vector<RankOutcome> look() const;
  /// Names the log files in an outcome.
  void add_log_paths(RankOutcome& outcome) const;
  RunResult look_at_the_end() const;
  bool guardian_is_dead() const;
  void reap_own_children();
  void kill_own_children() const;
  /// Waits until the guardian has forked the ranks. Errors: as wait_until_ended().
  void wait_until_started() const;
  /// Sleeps until the context changes from `seen`, the guardian dies, or `timeout` passed. False: the guardian is dead.
  bool sleep(std::uint32_t seen, std::chrono::nanoseconds timeout) const;
  void release();
  /// Calls that nobody can serve any more fail.
  void detach_calls();

  std::shared_ptr<JobMemory> memory_;
  std::uint32_t index_;
  std::uint32_t nprocs_;
  int control_send_fd_;
  LogRequest logs_;
  std::vector<OwnChild> own_children_;
  std::map<int, std::shared_ptr<CallClient>> calls_;  ///< By rank.
  /// Held while the record is looked at or given back: it is another context's afterwards.
  mutable std::mutex end_mutex_;
  std::optional<RunResult> result_;
  std::atomic<bool> ended_ = false;  ///< `result_` is there, and the record given back.
  pid_t owner_;
};

}  // namespace retinue
