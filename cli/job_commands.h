#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "debug_command.h"
#include "ps_command.h"
#include "stacks_command.h"
#include "stop_command.h"
#include "top_command.h"
#include "trace_command.h"

namespace retinue {

/// Whether `word` names one of JobCommands.
bool is_job_command(const std::string& word);

/// The commands that look at jobs and speak to them from outside: they make no job of their own.
class JobCommands {
 public:
  /// Declares them in `app`.
  explicit JobCommands(CLI::App& app);

  JobCommands(const JobCommands&) = delete;  // CLI11 keeps addresses of the options.
  JobCommands& operator=(const JobCommands&) = delete;

  /// Runs the one that was parsed. Returns the exit code. Errors: Error.
  int run() const;

 private:
  CLI::App* ps_;
  CLI::App* stop_;
  CLI::App* stacks_;
  CLI::App* debug_;
  CLI::App* trace_;
  CLI::App* top_;
  PsOptions ps_options_;
  StopOptions stop_options_;
  StacksOptions stacks_options_;
  DebugOptions debug_options_;
  TraceOptions trace_options_;
  TopOptions top_options_;
};

}  // namespace retinue
