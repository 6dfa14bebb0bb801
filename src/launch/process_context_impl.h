#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ipc/context_table.h"
#include "process/start_request.h"
#include "retinue/base/deadline.h"
#include "retinue/launch/process_context.h"
#include "retinue/launch/runtime.h"

namespace retinue {

class ProcessContext::Impl {
 public:
  Impl(std::shared_ptr<JobMemory> memory, std::uint32_t index, int control_send_fd);
  ~Impl();

  /// True when all ranks have ended.
  bool wait_until_ended(const Deadline& deadline);
  /// Outcomes by rank: final ones when all have ended, else a look at the ranks as they are.
  std::vector<RankOutcome> outcomes() const;
  std::vector<int> pids() const;
  void request(ControlKind kind, int signal = 0) const;
  std::uint32_t index() const { return index_; }

  /// Ranks that this process forked itself and must reap.
  void add_own_child(std::uint32_t rank, pid_t pid) { own_children_.push_back({rank, pid}); }

 private:
  struct OwnChild {
    std::uint32_t rank;
    pid_t pid;
  };

  ContextRecord& record() const { return context_record(*memory_, index_); }
  std::vector<RankOutcome> look() const;
  void reap_own_children();
  void let_go();

  std::shared_ptr<JobMemory> memory_;
  std::uint32_t index_;
  int control_send_fd_;
  std::vector<OwnChild> own_children_;
  std::vector<RankOutcome> final_outcomes_;
  bool ended_ = false;
};

}  // namespace retinue
