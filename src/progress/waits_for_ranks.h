#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ipc/records/recorded_calls.h"
#include "retinue/ipc/detail/blocked_time.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Intervals in order, which don't overlap.
using Intervals = std::vector<detail::BlockedTimes::Interval>;

/// The time that is in both. `some`: in any order, and may overlap.
std::uint64_t overlap_ns(const Intervals& ordered, Intervals some);

/// Follows the calls that the processes of a job record, and finds when this process's calls waited for others.
///
/// Threads: one at a time.
class WaitsForRanks {
 public:
  explicit WaitsForRanks(std::shared_ptr<JobMemory> memory);

  const std::shared_ptr<JobMemory>& memory() const { return memory_; }
  /// Of the calls since the last look: the time until the last member of a collective began it, or until its own end,
  /// and the time of receives.
  Intervals look();

 private:
  /// A group that this process is in, as the recorders of its members know it.
  struct Group {
    int size = 0;
    int known_members = 0;
    std::uint64_t seen = 0;  ///< This process's calls up to here have ended.
    struct Begun {
      int members = 0;
      std::uint64_t last_ns = 0;
    };
    std::map<std::uint64_t, Begun> calls;  ///< By sequence, those after `seen`.
  };
  struct Process {
    std::uint64_t next_record = 1;
    std::uint64_t incarnation = 0;
    Recording names;                                ///< Without calls.
    std::vector<std::string> keys;                  ///< Of its groups.
    std::map<std::uint16_t, std::uint64_t> newest;  ///< By its own number of a group.
  };

  void read_names(std::uint32_t slot, Process& process);
  void count_members();
  /// The calls that are new.
  std::vector<RecordedCall> read_new(std::uint32_t slot);
  void note_begun(const Process& process, const RecordedCall& call);
  void add_wait(const RecordedCall& call, const Process& own, std::uint64_t now, Intervals& waits);

  std::shared_ptr<JobMemory> memory_;
  std::map<std::uint32_t, Process> processes_;  ///< By slot.
  std::map<std::string, Group> groups_;
  bool has_new_groups_ = false;      ///< Of this process: their other members are not known yet.
  std::vector<std::uint64_t> open_;  ///< Records of this process's calls that had not ended.
};

}  // namespace retinue
