#pragma once

#include <sys/types.h>

#include <optional>

#include "os/process/kill_cgroup.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The guardian's side of a process that ends what is left of the job when program and guardian were killed at once.
/// Asked for by RETINUE_WATCHER=1; without it this does nothing.
///
/// The watcher is in a session, and where that is permitted in a cgroup, other than the ranks', and has another name
/// than the program. It kills by the cgroup, which nothing leaves, and by the marks that sweep_job() looks for.
class Watcher {
 public:
  Watcher() = default;

  /// Forks it; then moves the caller, the guardian, into the ranks' cgroup. Errors: none; without a watcher the job
  /// runs all the same.
  void start(const JobMemory& memory, int program_pidfd);
  /// A rank that somebody else forked.
  void add(pid_t pid) const;
  bool owns(pid_t pid) const { return pid != 0 && pid == pid_; }
  /// It was reaped: its pid may be another's soon.
  void on_exit(pid_t pid) {
    if (pid == pid_) pid_ = 0;
  }
  /// The guardian has left nothing behind and ends: so does the watcher.
  void end();

 private:
  std::optional<KillCgroup> cgroup_;
  pid_t pid_ = 0;
};

}  // namespace retinue
