#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "run_options.h"

namespace retinue {

/// What the flags of `retinue run` say, as text; make_run_options() reads it.
struct RunFlags {
  ProgramSection program;  ///< The first one's; its command is still the whole rest of the line.
  bool no_python = false, module = false, run_path = false;
  std::string nnodes = "1:1", node_rank = "0", local_addr;
  std::string rdzv_backend = "static", rdzv_endpoint, rdzv_id = "none", rdzv_conf;
  bool standalone = false;
  std::string master_addr, master_port;
  std::string max_restarts = "0", monitor_interval = "0.1", start_method = "spawn";
  std::string log_dir, redirects = "0", tee = "0", local_ranks_filter;
  std::string console_filters, duplicate_stdout_filters, duplicate_stderr_filters;
  std::string event_log_handler = "null", logs_specs, numa_binding;
  std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT", shutdown_timeout;
  bool virtual_local_rank = false, dry_run = false;
  std::string input, wrap, wrap_ranks, report, trace_dir;
};

/// Declares the flags of `retinue run`; each is also read from RETINUE_<NAME>, else PET_<NAME>.
void declare_run_flags(CLI::App& run, RunFlags& flags);

/// The environment variable that gives a flag's default: RETINUE_<NAME> if it is set, else PET_<NAME>.
std::string variable_of_flag(const std::string& long_name);

/// Reads what the flags say. `rest` is the program with its arguments, and further programs of the job after `:`.
/// Errors: UsageError for what is wrong, what does not fit together, and what needs several machines.
RunOptions make_run_options(const RunFlags& flags, const std::vector<std::string>& rest);

}  // namespace retinue
