#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace retinue::test {

/// A program that a test starts and looks at from outside. Its orphans come to the test's process, so that the test
/// knows when nothing of it is left.
class StartedProgram {
 public:
  /// `program` is a name in the build's bin folder, or a path from the root. Its standard output can be read here.
  explicit StartedProgram(const std::string& program, std::vector<std::string> arguments = {});
  ~StartedProgram();
  StartedProgram(const StartedProgram&) = delete;
  StartedProgram& operator=(const StartedProgram&) = delete;

  pid_t pid() const { return pid_; }

  /// The next line with its end; empty at the end of the output.
  std::string read_line();
  std::string read_all();

  /// Waits until the program and all that came from it have ended by themselves. Returns the program's wait() status.
  /// Does not end while anything of it lives: the test's time limit is what says so.
  int wait_for_all() const;

 private:
  pid_t pid_ = -1;
  FILE* output_ = nullptr;
};

}  // namespace retinue::test
