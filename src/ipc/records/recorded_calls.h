#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// One call, as a reader sees it. Times are CLOCK_MONOTONIC.
struct RecordedCall {
  std::uint64_t record = 0;  ///< Its number in its process, from 1.
  std::uint64_t started_ns = 0;
  std::uint64_t ended_ns = 0;  ///< 0: it was under way.
  bool failed = false;
  std::uint64_t sequence = 0;  ///< In its group: of collectives, or of this member's messages.
  std::uint8_t kind = 0;       ///< Index into Recording::kinds, as the next two into `dtypes` and `ops`.
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint16_t group = 0;  ///< Index into Recording::groups.
  int peer = 0;             ///< Or the root; -1: anybody.
  int tag = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint32_t site = 0;  ///< Index into Recording::sites.
};

struct RecordedGroup {
  std::string name;  ///< The same on all members, and unique in the job.
  int rank = 0;
  int size = 0;
};

struct RecordedPlace {
  std::string file;  ///< The end of its path; empty: not known.
  unsigned line = 0;
};

/// What a process has kept of its last calls, in the order in which they began.
struct Recording {
  std::uint32_t slot = 0;
  int pid = 0;
  std::uint64_t total = 0;  ///< Calls that it made, those that it does not keep any more among them.
  std::uint64_t begun_ns = 0;
  std::uint64_t read_ns = 0;
  std::vector<RecordedCall> calls;
  std::vector<RecordedGroup> groups;
  std::vector<RecordedPlace> sites;
  std::vector<std::string> kinds;
  std::vector<std::string> dtypes;
  std::vector<std::string> ops;

  /// Whether it is of a message, and numbered among its member's messages, not among the group's collectives.
  bool is_message(const RecordedCall& call) const { return kind_of(call) == "send" || kind_of(call) == "recv"; }
  const std::string& kind_of(const RecordedCall& call) const { return kinds[call.kind]; }
  const std::string& dtype_of(const RecordedCall& call) const { return dtypes[call.dtype]; }
  const std::string& op_of(const RecordedCall& call) const { return ops[call.op]; }
  const RecordedGroup& group_of(const RecordedCall& call) const { return groups[call.group]; }
  const RecordedPlace& site_of(const RecordedCall& call) const { return sites[call.site]; }
};

/// What the process in `process_slot` recorded, whether it lives or not; nothing where it has no recorder. Calls that
/// it makes meanwhile may be missing, what is there is whole. Whatever was written there: all indices are those of
/// vectors, no record comes twice, and of each call started_ns <= ended_ns <= read_ns.
std::optional<Recording> read_recording(const JobMemory& memory, std::uint32_t process_slot);

/// The same without its calls: what their numbers mean. Cost: some 10 us.
std::optional<Recording> read_recorder(const JobMemory& memory, std::uint32_t process_slot);

/// How many calls it has recorded so far; 0 without a recorder. Cost: nanoseconds.
std::uint64_t count_recorded_calls(const JobMemory& memory, std::uint32_t process_slot);

/// Those of its calls that are numbered `record` or more, the newest `limit` of them, in order, up to the first that is
/// still being written: who reads on from the number after the last one here misses none that is kept.
/// Cost: 20 ns for each, however many are kept.
std::vector<RecordedCall> read_calls_since(const JobMemory& memory, std::uint32_t process_slot, std::uint64_t record,
                                           std::size_t limit);

/// The call of that number, if it is kept.
std::optional<RecordedCall> read_call(const JobMemory& memory, std::uint32_t process_slot, std::uint64_t record);

}  // namespace retinue
