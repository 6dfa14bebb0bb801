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

/// How a rank comes to life.
enum class StartMethod {
  /// A fork of the guardian: the rank sees the program as it was when its Runtime was made. Costs a fork.
  kForkserver,
  /// A new execution of this program, whose Runtime runs the rank's function and does not return. Costs a program
  /// start.
  kSpawn,
  /// A fork of the caller as it is now: closures are allowed. Refused while the caller has other threads.
  kFork,
};

struct RuntimeOptions {
  /// Bytes that job memory may grow to; only what is used costs memory. 0: RETINUE_JOB_MEMORY (bytes, with suffix K, M,
  /// G, T), else half of the smaller of RAM and the memory cgroup's limit.
  std::size_t job_memory = 0;
  /// A file that gets a report of the run, one page of HTML for a browser: a timeline for each rank, where its time
  /// went, calls by kind, size and place, and failures. Written anew whenever ranks that were started together have all
  /// ended; relative to the directory at the start. Empty: RETINUE_REPORT, else none.
  std::string report = {};
};

/// Variables by name, by local rank.
using EnvironmentByRank = std::map<int, std::map<std::string, std::string>>;

struct SpawnOptions {
  int nprocs = 1;
  /// Default: kForkserver; kSpawn if the program had more than one thread when its Runtime was made.
  std::optional<StartMethod> start_method = std::nullopt;
  /// false: spawn returns at once, and ProcessContext::join() waits.
  bool join = true;
  /// true: the ranks are stopped as soon as the program ends, and may start no processes of their own.
  bool daemon = false;
  StopPolicy stop = {};
  /// Time that ranks which are not daemonic have to end by themselves when the program ends; then they are stopped.
  /// Also the time, at least 1 s, that each rank has to exit when its function has returned.
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  /// Added to the caller's environment, by rank; ranks that are left out get nothing more.
  EnvironmentByRank environment = {};
  /// Where the ranks start; empty: in the caller's directory. Relative to that.
  std::string directory = {};
  /// Threads that each rank's libraries use. Default (0): the rank's part of its CPUs, as rank_places() says; a number,
  /// or OMP_NUM_THREADS where it is set. It is given to OpenMP by call, and to what ranks execute as
  /// OMP_NUM_THREADS.
  int threads_per_rank = 0;
  CpuAffinity cpu_affinity = {};
  /// The memory node that pages come from: one for all ranks, or one for each. Empty: as the kernel chooses.
  std::vector<int> memory_nodes = {};
  /// A folder, made where there is none. When one of the ranks fails, DIR/<job>.<id>/context_<n> in it gets the last
  /// collectives and messages of all of them: trace.json for https://ui.perfetto.dev, and dumps for PyTorch's
  /// torchfrtrace. The failure says where. Empty: RETINUE_TRACE_DIR, else none.
  std::string trace_dir = {};
};

struct StartOptions {
  /// Heads the lines of these ranks on the console, and the job's messages about them.
  std::string name = "rank";
  std::optional<StartMethod> start_method = std::nullopt;
  /// From here to trace_dir as SpawnOptions has them.
  bool daemon = false;
  StopPolicy stop = {};
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  EnvironmentByRank environment = {};
  std::string directory = {};  ///< Also where a program's relative path begins.
  int threads_per_rank = 0;
  CpuAffinity cpu_affinity = {};
  std::vector<int> memory_nodes = {};
  std::string trace_dir = {};  ///< Left out where there is a log_dir: log_dir/trace gets the last 1,000 calls of each.
  /// An empty directory that exists: gets {local_rank}/stdout.log, stderr.log, error.json. Left out where redirects or
  /// tees need one: a new one in the temporary folder (TMPDIR), named on standard error, kept after a failure only.
  /// Ranks find the path of their error.json in TORCHELASTIC_ERROR_FILE.
  std::string log_dir = {};
  /// Streams that go to their files only.
  StdByRank redirects = {};
  /// Streams that go to their files and, line by line with a prefix, to the console; also where `redirects` names them.
  /// A slow or closed console stops no rank. Programs of the C library write whole buffers to files: give them
  /// `stdbuf -oL`, and Python PYTHONUNBUFFERED=1, to see lines at once.
  StdByRank tee = {};
  /// Heads each tee'd line; ${role_name} (that is `name`), ${local_rank} and ${rank} are filled in.
  std::string line_prefix = "[${role_name}${local_rank}]:";
  /// Local ranks whose lines the console shows; empty: all of them. Of the others, tee'd streams go to their files only
  /// and those without a file to nowhere.
  std::vector<int> console_ranks = {};
  /// Of tee'd lines the console shows those that contain one of these; empty: all of them.
  std::vector<std::string> console_filters = {};
  /// Lines of tee'd standard output, of standard error, that contain one of these are also appended, with their prefix,
  /// to one file for all ranks: log_dir/filtered_stdout.log, log_dir/filtered_stderr.log. Of ranks that the console
  /// shows, whatever `console_filters` say. Empty: there is no such file.
  std::vector<std::string> duplicate_stdout_filters = {};
  std::vector<std::string> duplicate_stderr_filters = {};
};

}  // namespace retinue
