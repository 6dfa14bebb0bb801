#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "retinue/launch/placement.h"
#include "retinue/launch/std_streams.h"
#include "retinue/process/stop_policy.h"

namespace retinue {

/// How a rank is started.
enum class StartMethod {
  /// Forks the guardian: the rank sees the program as it was when its Runtime was made, or as RuntimeOptions::command
  /// made it. Costs a fork.
  kForkserver,
  /// Executes this program anew. Its Runtime runs the rank's function and doesn't return. Costs a program start.
  kSpawn,
  /// Forks the caller as it is now, so closures are allowed. Refused while the caller has other threads.
  kFork,
};

struct RuntimeOptions {
  /// Bytes that job memory may grow to; only what is used costs memory. 0: RETINUE_JOB_MEMORY (bytes, with suffix K, M,
  /// G, T), or else half of the smaller of RAM and the memory cgroup's limit.
  std::size_t job_memory = 0;
  /// A file for a report of the run, one page of HTML for a browser. The report shows a timeline for each rank, how the
  /// rank spent its time, calls by kind, size and place, and failures. The file is rewritten each time all ranks that
  /// were started together have ended. The path is relative to the directory at the start. Empty: RETINUE_REPORT, or
  /// else no report.
  std::string report = {};
  /// The arguments, the first of them included, to execute this program's file with for ranks of kSpawn. If they are
  /// given, the guardian is executed with them too, and kForkserver forks it as it is at its Runtime: what it loads
  /// before that, its ranks have. This process may have several threads then. For programs such as interpreters, whose
  /// own arguments begin other work. Empty: this process's arguments.
  std::vector<std::string> command = {};
};

/// Environment variables by name, by local rank.
using EnvironmentByRank = std::map<int, std::map<std::string, std::string>>;

struct SpawnOptions {
  int nprocs = 1;
  /// Default: kForkserver, or kSpawn if the program had more than one thread when its Runtime was made and gave it no
  /// RuntimeOptions::command.
  std::optional<StartMethod> start_method = std::nullopt;
  /// false: spawn returns at once, and ProcessContext::join() waits.
  bool join = true;
  /// true: the ranks are stopped as soon as the program ends, and may not start processes of their own.
  bool daemon = false;
  StopPolicy stop = {};
  /// The time that non-daemonic ranks have to end by themselves when the program ends; then they are stopped. Also the
  /// time, at least 1 s, that each rank has to exit after its function has returned.
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  /// Variables added to the caller's environment, by rank. Ranks that are left out get none.
  EnvironmentByRank environment = {};
  /// The directory where the ranks start, relative to the caller's directory. Empty: the caller's directory.
  std::string directory = {};
  /// The number of threads that each rank's libraries use. Default (0): the number of CPUs that the rank gets, as
  /// rank_places() returns it; a number given here, or OMP_NUM_THREADS if set, takes its place. Retinue passes it to
  /// OpenMP by a call, and to programs that ranks execute as OMP_NUM_THREADS.
  int threads_per_rank = 0;
  CpuAffinity cpu_affinity = {};
  /// The memory node that pages come from: one for all ranks, or one for each. Empty: as the kernel chooses.
  std::vector<int> memory_nodes = {};
  /// A folder, created if it doesn't exist. When a rank fails, DIR/<job>.<id>/context_<n> in it gets the last
  /// collectives and messages of all the ranks: trace.json for https://ui.perfetto.dev, and dumps for PyTorch's
  /// torchfrtrace. The failure names that folder. Empty: RETINUE_TRACE_DIR, or else no trace.
  std::string trace_dir = {};
};

struct StartOptions {
  /// Begins the lines of these ranks on the console and the job's messages about them.
  std::string name = "rank";
  std::optional<StartMethod> start_method = std::nullopt;
  /// The options from here to trace_dir are as in SpawnOptions.
  bool daemon = false;
  StopPolicy stop = {};
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  EnvironmentByRank environment = {};
  std::string directory = {};  ///< Also the directory that a program's relative path starts from.
  int threads_per_rank = 0;
  CpuAffinity cpu_affinity = {};
  std::vector<int> memory_nodes = {};
  std::string trace_dir = {};  ///< If empty and there is a log_dir: log_dir/trace gets the last 1,000 calls of each.
  /// An existing, empty directory for {local_rank}/stdout.log, stderr.log and error.json. If it is empty and redirects
  /// or tees need a directory, Retinue makes one in the temporary folder (TMPDIR), names it on standard error, and
  /// keeps it only after a failure. Ranks find the path of their error.json in TORCHELASTIC_ERROR_FILE.
  std::string log_dir = {};
  /// Streams that go to their files only.
  StdByRank redirects = {};
  /// Streams that go to their files and, line by line with a prefix, to the console, even if `redirects` names them. A
  /// slow or closed console doesn't stop a rank. Programs that use the C library write whole buffers to files. To see
  /// lines at once, run them with `stdbuf -oL`, and Python with PYTHONUNBUFFERED=1.
  StdByRank tee = {};
  /// Begins each tee'd line. ${role_name} (the value of `name`), ${local_rank} and ${rank} are replaced.
  std::string line_prefix = "[${role_name}${local_rank}]:";
  /// Local ranks whose lines the console shows. Empty: all. For the other ranks, tee'd streams go to their files only,
  /// and streams without a file are discarded.
  std::vector<int> console_ranks = {};
  /// The console shows those tee'd lines that contain one of these texts. Empty: all lines.
  std::vector<std::string> console_filters = {};
  /// Lines of tee'd standard output or standard error that contain one of these texts are also appended, with their
  /// prefix, to one file for all ranks: log_dir/filtered_stdout.log or log_dir/filtered_stderr.log. This applies to
  /// ranks that the console shows, regardless of `console_filters`. Empty: there is no such file.
  std::vector<std::string> duplicate_stdout_filters = {};
  std::vector<std::string> duplicate_stderr_filters = {};
};

}  // namespace retinue
