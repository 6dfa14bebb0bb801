#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

namespace retinue {

/// A cgroup (version 2) below the calling process's, so that all that is in it can be killed at once, whatever it did
/// to its session, its parent or its environment. Copies name the same one.
class KillCgroup {
 public:
  /// nullopt where none may be made or the kernel cannot kill it (before 5.14); then `problem` says why.
  static std::optional<KillCgroup> make(const std::string& name, std::string& problem);

  /// Moves a process into it, 0: the caller. What it forks from then on is in it too. Returns whether it is.
  bool add(pid_t pid) const;
  /// Moves the caller out of it again. Returns whether it is out.
  bool leave() const;
  /// Kills all that is in it, and removes it. Blocking: until they are dead, at most `patience`.
  void kill_and_remove(std::chrono::milliseconds patience) const;

 private:
  KillCgroup(std::string parent, std::string folder) : parent_(std::move(parent)), folder_(std::move(folder)) {}

  std::string parent_;
  std::string folder_;
};

}  // namespace retinue
