#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collective/board/board.h"
#include "collective/board/wait_record.h"
#include "ipc/memory/job_clock.h"
#include "os/process/process_activity.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// Says on the job's standard error that members are late: who waits where since when, who is missing, and what those
/// do. Who waits for another member itself isn't called late: that other is. One of all that wait does so, which a word
/// of the board decides, and again after times that double.
class LateReport {
 public:
  LateReport(const JobGroup& group, const Board& board, const CommunicatorOptions& options);

  /// To be called now and then by who waits. `own`: as it is published; `first_looks`: at those that are late.
  void look(const SeenWait& own, JobDeadline deadline, const std::map<int, std::optional<ActivityLook>>& first_looks);
  /// The wait has ended: what comes next is another lateness.
  void end();

 private:
  using FirstLooks = std::map<int, std::optional<ActivityLook>>;

  /// For whom this member waits, and those that have waited as long.
  std::vector<int> late_of_all(const SeenWait& own, std::chrono::nanoseconds now) const;
  bool is_held_by_debugger(const std::vector<int>& late) const;
  /// With a mark for what each of the missing does.
  std::string text(const SeenWait& own, const std::vector<int>& late, JobDeadline deadline) const;
  std::string missing_text(const SeenWait& own, int rank) const;
  bool deliver(const std::string& text, const FirstLooks& first_looks) const;

  const JobGroup& group_;
  Board board_;
  std::chrono::nanoseconds late_after_;  ///< None: never.
  std::uint64_t told_until_ = 0;         ///< What this member wrote into the word last; 0: nothing.
};

/// What the member waits for, in this group and others of the job, as "in group "b" rank 1 waits in its 2nd call,
/// barrier, at train.cpp:88"; only what it has waited for a second or more. Blocking: some milliseconds, where another
/// process holds the registry.
std::vector<std::string> long_waits_of(const JobGroup& group, const Board& board, int rank);

}  // namespace retinue
