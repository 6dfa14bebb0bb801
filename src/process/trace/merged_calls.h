#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ipc/records/recorded_calls.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A process of a job, with the calls that it kept.
struct RecordedProcess {
  std::uint32_t context = 0;  ///< Its context's id; 0: it is no rank, but the program or a guest.
  int rank = -1;              ///< In that context's world; -1: it is none.
  Recording recording;        ///< One without calls where it has no recorder.

  bool is_rank() const { return rank >= 0; }
};

/// What these processes, by their slots, had recorded at one moment: calls that they made later are left out, and those
/// that ended later are under way. Without `slots`: what all processes of the job had that have a recorder, ranks
/// first. Cost: 50 ns for each call.
std::vector<RecordedProcess> read_recordings(const JobMemory& memory, std::span<const std::uint32_t> slots);
std::vector<RecordedProcess> read_recordings(const JobMemory& memory);

/// A call of one of them, by two indices.
struct CallOf {
  std::uint32_t process = 0;
  std::uint32_t call = 0;
};

/// A group of which at least one process is there.
struct MergedGroup {
  static constexpr std::uint32_t kUnknown = std::numeric_limits<std::uint32_t>::max();

  std::string name;
  std::vector<std::uint32_t> members;  ///< By rank in the group: an index of a process, or kUnknown.
};

/// One collective of a group, by those members whose call of it is kept.
struct MergedCall {
  std::uint32_t group = 0;
  std::uint64_t sequence = 0;
  std::vector<CallOf> calls;  ///< In the order in which they were begun.
  bool is_whole = false;      ///< All members are there.
  /// Processes that are members and had not begun it; empty unless all members are known to be these or there.
  std::vector<std::uint32_t> missing;
};

/// Where a member's time in a collective went, as far as it has come.
struct CallTimes {
  std::uint64_t waiting_ns = 0;   ///< Until the last member began it, or until its own end, where that came first.
  std::uint64_t transfer_ns = 0;  ///< All the rest.
  std::uint32_t late = 0;         ///< The process that it waited for: the last to begin it, or one that never did.
};

/// What the processes of a job recorded, merged by group and sequence.
class MergedCalls {
 public:
  explicit MergedCalls(std::vector<RecordedProcess> processes);

  const std::vector<RecordedProcess>& processes() const { return processes_; }
  const std::vector<MergedGroup>& groups() const { return groups_; }
  /// All collectives, by the time when they were first begun.
  const std::vector<MergedCall>& calls() const { return calls_; }

  const RecordedProcess& process_of(const CallOf& call) const { return processes_[call.process]; }
  const RecordedCall& call_of(const CallOf& call) const { return processes_[call.process].recording.calls[call.call]; }
  /// The group of a call, collective or message.
  std::uint32_t group_of(const CallOf& call) const { return group_of_[call.process][call_of(call).group]; }
  /// The collective that this call is of; null for a message.
  const MergedCall* find(const CallOf& call) const;
  /// Where its time went; nothing for a message, and for a collective of which a member's call may have been lost.
  std::optional<CallTimes> times_of(const CallOf& call) const;

 private:
  void add_groups();
  void add_calls();
  void add_missing();
  /// By group, also those that never made it: a group as large as its context, in the ranks' order, is of all of it.
  std::vector<std::vector<std::uint32_t>> all_members() const;

  std::vector<RecordedProcess> processes_;
  std::vector<MergedGroup> groups_;
  std::vector<MergedCall> calls_;
  std::vector<std::vector<std::uint32_t>> group_of_;   ///< By process, and its own number of a group.
  std::vector<std::vector<std::uint32_t>> merged_of_;  ///< By process and call: an index into calls_.
};

/// When it ended, or else when it was last seen.
inline std::uint64_t end_of(const RecordedCall& call, const Recording& recording) {
  return call.ended_ns != 0 ? call.ended_ns : recording.read_ns;
}

}  // namespace retinue
