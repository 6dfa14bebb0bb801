#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "retinue/launch/placement.h"
#include "retinue/launch/std_streams.h"

namespace retinue {

/// How a section's command becomes a program.
enum class CommandForm {
  kAutomatic,  ///< A `.py` file is run by Python, all else is executed.
  kProgram,    ///< --no-python: executed, whatever it is.
  kModule,     ///< --module: `python -m`.
  kRunPath,    ///< --run-path: by Python's runpy.run_path().
};

/// One program of the job, and how many ranks it has.
struct ProgramSection {
  std::string count = "1";
  std::string role = "default";
  CommandForm form = CommandForm::kAutomatic;
  std::vector<std::string> command;  ///< The program and its arguments.
};

/// What `retinue run` is to do; one field for each thing that a flag can say.
struct RunOptions {
  std::vector<ProgramSection> programs;
  std::string run_id = "none";
  std::string master_addr = "127.0.0.1";
  std::optional<int> master_port;  ///< None: a free one for each attempt.
  int max_restarts = 0;
  std::string log_dir;
  StdByRank redirects;
  StdByRank tee;
  std::vector<int> console_ranks;
  std::vector<std::string> console_filters;
  std::vector<std::string> duplicate_stdout_filters;
  std::vector<std::string> duplicate_stderr_filters;
  std::vector<int> ending_signals;  ///< Those that end the job; others are only passed on.
  std::chrono::milliseconds shutdown_timeout = std::chrono::seconds(30);
  bool virtual_local_rank = false;
  CpuAffinity cpu_affinity;
  /// "" (files and pipes go to all ranks), "none", or the rank that reads our standard input.
  std::string input;
  std::vector<std::string> wrap;
  std::vector<int> wrap_ranks;  ///< Empty: all.
  bool dry_run = false;
  std::string report;  ///< A file; empty: none.
  std::string trace_dir;
};

}  // namespace retinue
