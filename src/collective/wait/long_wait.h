#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collective/board/board.h"
#include "collective/diagnosis/deadlock.h"
#include "collective/diagnosis/late_report.h"
#include "collective/wait/awaited.h"
#include "ipc/memory/job_clock.h"
#include "os/process/process_activity.h"
#include "retinue/collective/options.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// What a member does about a wait that takes long: tells the others what it waits for, looks for deadlocks, and says
/// who is late.
///
/// Threads: one at a time.
class LongWait {
 public:
  /// Before it has taken so long it costs nothing.
  static constexpr auto kFirstLook = std::chrono::seconds(1);
  static constexpr auto kLookAgain = std::chrono::milliseconds(250);

  LongWait(const JobGroup& group, const Board& board, const CommunicatorOptions& options);

  /// The waits from here on end by themselves, as their caller wants it.
  void set_has_own_deadline(bool has_one) { has_own_deadline_ = has_one; }

  /// After the member looked for what it waits for, and it has not come. `moves`: those of Background. Doesn't throw.
  void look(const Awaited& awaited, JobDeadline deadline, std::uint64_t moves) noexcept;
  /// The wait has ended.
  void end() {
    if (is_published_) withdraw();
  }

  /// What a member that is late does, since the wait became long if it did: see describe_activity().
  std::string activity_of(int rank, std::int32_t pid) const;

 private:
  void begin(const Awaited& awaited);
  void publish(const Awaited& awaited);
  void withdraw();

  const JobGroup& group_;
  Board board_;
  Member& own_;
  DeadlockWatch deadlocks_;
  LateReport late_report_;
  SeenWait wait_;
  std::map<int, std::optional<ActivityLook>> first_looks_;  ///< At members that are late.
  std::chrono::nanoseconds next_search_{0};                 ///< On the job's clock.
  bool is_published_ = false;
  bool has_own_deadline_ = false;
};

}  // namespace retinue
