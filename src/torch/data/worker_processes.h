#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace retinue {

/// The worker processes of a loader: forks of this process that end with it.
///
/// Raw forks, which other threads of this process don't forbid, as they forbid StartMethod::kFork: a worker runs the
/// data set only, and of LibTorch what needs no other thread. They are no ranks. Retinue's guardian ends those that a
/// killed rank leaves behind.
class WorkerProcesses {
 public:
  /// What a worker runs, with its number. It returns when the worker's work is over or the loader's process is gone,
  /// which the function that it gets tells.
  using Body = std::function<void(std::size_t worker, const std::function<bool()>& is_orphan)>;

  /// Errors: SystemError.
  WorkerProcesses(std::size_t count, Body body);
  /// Kills them.
  ~WorkerProcesses();
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;

  struct Death {
    std::size_t worker;
    pid_t pid;
    std::string how;  ///< "was killed by signal 9 (Killed)"
  };
  /// Returns a worker that has ended since the last look, and lets it go.
  std::optional<Death> find_death();
  /// Starts a new process for each worker that find_death() has returned. Errors: SystemError.
  void replace_ended();

  void kill_worker(std::size_t worker) const noexcept;

  const std::vector<pid_t>& pids() const { return pids_; }

 private:
  pid_t start(std::size_t worker);
  void kill_all() noexcept;

  Body body_;
  pid_t owner_;
  std::vector<pid_t> pids_;  ///< 0: has ended.
};

}  // namespace retinue
