#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace retinue::bench {

/// Starts a program with posix_spawn; its standard output goes to descriptor `output`, or nowhere for -1.
/// Errors: Unavailable if it cannot be started.
pid_t start_program(const std::vector<std::string>& arguments, int output = -1);

/// Errors: Unavailable, naming the program, if it does not end with code 0.
void wait_for_success(pid_t pid, const std::string& name);

/// What the program prints in all, taken off its output as it comes. Errors: Unavailable.
struct Drained {
  std::size_t bytes = 0;
  std::size_t lines = 0;
  double us = 0;
};
Drained drain_program(const std::vector<std::string>& arguments);

/// The command `retinue` beside this program, Open MPI's mpirun as make peers installs it or else from PATH, and the
/// interpreter that has PyTorch. Errors: Unavailable.
std::string retinue_command();
std::string mpirun_command();
std::string torch_python();

}  // namespace retinue::bench
