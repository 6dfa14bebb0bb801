#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The collective or message that a process is in.
struct CurrentCall {
  std::string kind;   ///< "all_reduce"; of words that others wrote, what can be shown.
  std::string group;  ///< Its name.
  std::uint64_t sequence = 0;
  std::string site;  ///< "train.cpp:88"; empty: not known.
  std::chrono::nanoseconds waiting{0};
};

/// Of the calls that the process in `process_slot` has begun and not ended, the newest collective, else the message
/// that was begun first; nothing where there is none among its last 64. Commits no page of job memory. Cost: 2 us, and
/// 20 us where there is one.
std::optional<CurrentCall> current_call_of(const JobMemory& memory, std::uint32_t process_slot);

/// One rank of a job, as it is now.
struct RankView {
  std::uint32_t context = 0;  ///< Its context's id.
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  /// "starting"; "running"; "stopped": by a signal, until SIGCONT; "traced": a debugger holds it; "finished": its
  /// function has returned and the process is about to end; "ended": how stands in `end`.
  std::string state;
  std::string end;                   ///< "exited with code 3"; empty while it runs.
  char process_state = 0;            ///< As ps has it; 0 when it has ended. 'D': the kernel does not let it go.
  std::chrono::nanoseconds cpu{0};   ///< User and system.
  std::uint64_t resident_bytes = 0;  ///< Job memory that it touched included.
  std::string command;
  std::optional<CurrentCall> call;  ///< Of one that lives.
  std::uint64_t steps = 0;          ///< That it counted: see count_step().
  std::uint32_t slot = 0;           ///< Its entry in the job's process table.

  bool is_alive() const { return process_state != 0 && process_state != 'Z'; }
};

/// The ranks of all contexts that their owners have not let go of, by context and rank. Commits no page of job memory.
std::vector<RankView> view_ranks(const JobMemory& memory);

/// Whether a rank is debugged, so that no deadline of the job passes.
bool is_debugged(const JobMemory& memory);

/// How long ago the job was made.
std::chrono::nanoseconds age_of(const JobMemory& memory);

/// What the job's stop may take, by the longest of its stop policies.
std::chrono::milliseconds longest_stop_of(const JobMemory& memory);

}  // namespace retinue
