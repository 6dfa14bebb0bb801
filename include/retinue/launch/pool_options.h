#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "retinue/launch/initializer.h"
#include "retinue/launch/options.h"
#include "retinue/process/stop_policy.h"

namespace retinue {

struct PoolOptions {
  /// Workers; 0: one for each CPU that counts for this process.
  int processes = 0;
  /// Run by each worker before its first task: the pool fails when it fails.
  Initializer initializer = {};
  /// Calls after which a worker is replaced by a new one, looked at between tasks; 0: never.
  std::size_t max_tasks_per_child = 0;
  /// How often a task is started again whose worker died with it in hand: items of its chunk that were done run again,
  /// too. 0: it is reported as lost.
  int retries = 0;
  std::optional<StartMethod> start_method = std::nullopt;
  /// true: workers may start no processes of their own, and end at once with the program.
  bool daemon = true;
  StopPolicy stop = {};
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  /// Added to the caller's environment.
  std::map<std::string, std::string> environment = {};
  /// Where workers start; empty: in the caller's directory.
  std::string directory = {};
  /// Threads that each worker's libraries use; 0: its share of the CPUs.
  int threads_per_worker = 0;
};

struct MapOptions {
  /// Items that travel together and are run by one worker; 0: as many as give each worker four chunks.
  std::size_t chunk_size = 0;
};

}  // namespace retinue
