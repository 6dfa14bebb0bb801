#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "retinue/launch/detail/entry.h"
#include "retinue/launch/options.h"
#include "retinue/process/stop_policy.h"

namespace retinue {

/// A function that each worker of a Pool runs before its first task. initializer<fn>(arguments...) makes one.
class Initializer {
 public:
  Initializer() = default;
  Initializer(detail::EntryKey entry, detail::Encoded arguments)
      : entry_(std::move(entry)), arguments_(std::move(arguments)) {}

  const std::optional<detail::EntryKey>& entry() const noexcept { return entry_; }
  const detail::Encoded& arguments() const noexcept { return arguments_; }

 private:
  std::optional<detail::EntryKey> entry_;
  detail::Encoded arguments_;
};

template <auto fn, class... Arguments>
Initializer initializer(Arguments&&... arguments) {
  return {detail::entry_key<fn, detail::EntryStyle::kProcess>(),
          detail::encode<fn, detail::EntryStyle::kProcess>(std::forward<Arguments>(arguments)...)};
}

struct PoolOptions {
  /// The number of workers. 0: one for each CPU that counts for this process.
  int processes = 0;
  /// Each worker runs it before its first task. If it fails, the pool fails.
  Initializer initializer = {};
  /// The number of calls after which a new worker replaces a worker, checked between tasks. 0: no limit.
  std::size_t max_tasks_per_child = 0;
  /// How often a task is started again after its worker died while running it. Items of its chunk that were done run
  /// again, too. 0: the task is reported as lost.
  int retries = 0;
  std::optional<StartMethod> start_method = std::nullopt;
  /// true: workers may not start processes of their own, and end at once with the program.
  bool daemon = true;
  StopPolicy stop = {};
  std::chrono::milliseconds exit_grace = std::chrono::seconds(30);
  /// Variables added to the caller's environment.
  std::map<std::string, std::string> environment = {};
  /// The directory where workers start. Empty: the caller's directory.
  std::string directory = {};
  /// The number of threads that each worker's libraries use. 0: its share of the CPUs.
  int threads_per_worker = 0;
};

struct MapOptions {
  /// The number of items that are sent together and run by one worker. 0: so many that each worker gets four chunks.
  std::size_t chunk_size = 0;
};

}  // namespace retinue
