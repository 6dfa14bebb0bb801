#pragma once

#include <cstddef>
#include <optional>
#include <string>

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
};

struct SpawnOptions {
  int nprocs = 1;
  /// Default: kForkserver; kSpawn if the program had more than one thread when its Runtime was made.
  std::optional<StartMethod> start_method = std::nullopt;
  /// false: spawn returns at once, and ProcessContext::join() waits.
  bool join = true;
  StopPolicy stop = {};
};

struct StartOptions {
  /// Heads the job's messages about these ranks.
  std::string name = "rank";
  std::optional<StartMethod> start_method = std::nullopt;
  StopPolicy stop = {};
};

}  // namespace retinue
