#include "run_flags.h"

#include <algorithm>
#include <cctype>

#include "os/files/environment.h"

namespace retinue {
namespace {

std::string upper_snake(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

/// "-n,nproc-per-node" to "-n,--nproc-per-node,--nproc_per_node".
std::string spellings_of(const std::string& names, std::string& long_name) {
  const auto comma = names.find(',');
  long_name = comma == std::string::npos ? names : names.substr(comma + 1);
  std::string underscored = long_name;
  std::ranges::replace(underscored, '-', '_');
  std::string spellings = comma == std::string::npos ? "" : names.substr(0, comma + 1);
  spellings += "--" + long_name;
  if (underscored != long_name) spellings += ",--" + underscored;
  return spellings;
}

/// Declares flags of one group of the help text.
class Group {
 public:
  Group(CLI::App& app, std::string name) : app_(app), name_(std::move(name)) {}

  Group& text(const std::string& names, std::string& value, const std::string& help) {
    std::string long_name;
    const std::string spellings = spellings_of(names, long_name);
    CLI::Option* option = app_.add_option(spellings, value, help)->group(name_)->envname(variable_of_flag(long_name));
    if (!value.empty()) option->capture_default_str();
    return *this;
  }
  Group& flag(const std::string& names, bool& value, const std::string& help) {
    std::string long_name;
    const std::string spellings = spellings_of(names, long_name);
    app_.add_flag(spellings, value, help)->group(name_)->envname(variable_of_flag(long_name));
    return *this;
  }

 private:
  CLI::App& app_;
  std::string name_;
};

}  // namespace

std::string variable_of_flag(const std::string& long_name) {
  const std::string own = "RETINUE_" + upper_snake(long_name);
  return find_variable(own.c_str()) ? own : "PET_" + upper_snake(long_name);
}

void declare_run_flags(CLI::App& run, RunFlags& flags) {
  Group(run, "Program (may be given anew for each program of the job)")
      .text("-n,nproc-per-node", flags.program.count, "Ranks: a number, auto (one per GPU, else per CPU), cpu, gpu")
      .text("role", flags.program.role, "ROLE_NAME of these ranks; heads their tee'd lines")
      .flag("no-python", flags.no_python, "Execute the program as it is, also a .py file")
      .flag("-m,module", flags.module, "The program is a Python module: python -u -m")
      .flag("run-path", flags.run_path, "Run the script by Python's runpy.run_path()");
  Group(run, "Output")
      .text("log-dir", flags.log_dir, "Folder for DIR/<run id>/attempt_<n>/<local rank>/stdout.log and others")
      .text("-r,redirects", flags.redirects, "To files only: 1 stdout, 2 stderr, 3 both, or by rank, as 0:3,1:2")
      .text("-t,tee", flags.tee, "To files and the console: as --redirects")
      .text("local-ranks-filter", flags.local_ranks_filter, "Local ranks that the console shows, as 0,2; all if empty")
      .text("console-filters", flags.console_filters, "Show only tee'd lines with one of these texts, as error,loss")
      .text("duplicate-stdout-filters", flags.duplicate_stdout_filters,
            "Copy tee'd lines of stdout with one of these texts to filtered_stdout.log")
      .text("duplicate-stderr-filters", flags.duplicate_stderr_filters, "The same of stderr, to filtered_stderr.log");
  Group(run, "Life and death")
      .text("max-restarts", flags.max_restarts, "How often all ranks are started again after a failure")
      .text("signals-to-handle", flags.signals, "Signals that end the job; ranks get them first")
      .text("shutdown-timeout", flags.shutdown_timeout, "Seconds between the first signal and SIGKILL (30)")
      .text("stdin", flags.input, "The rank that reads our standard input, or none; else files and pipes go to all");
  Group(run, "World")
      .text("master-addr", flags.master_addr, "MASTER_ADDR (127.0.0.1)")
      .text("master-port", flags.master_port, "MASTER_PORT; a free one if left out")
      .text("rdzv-id", flags.rdzv_id, "Name of the run: TORCHELASTIC_RUN_ID, and the folder of its logs")
      .flag("standalone", flags.standalone, "One machine, and a run id of its own")
      .text("nnodes", flags.nnodes, "Machines: 1")
      .text("node-rank", flags.node_rank, "This machine's number: 0")
      .text("rdzv-backend", flags.rdzv_backend, "static or c10d: the same on one machine")
      .text("rdzv-endpoint", flags.rdzv_endpoint, "This machine, as localhost or localhost:29400")
      .text("rdzv-conf", flags.rdzv_conf, "Settings of a meeting of machines: key=value,... ; nothing to do on one")
      .text("local-addr", flags.local_addr, "Address of this machine: MASTER_ADDR, unless that is given")
      .flag("virtual-local-rank", flags.virtual_local_rank, "LOCAL_RANK=0 for all, and one GPU of its own for each")
      .text("numa-binding", flags.numa_binding, "CPUs by NUMA node: node, socket, exclusive or core-complex");
  Group(run, "Looking into it")
      .flag("dry-run", flags.dry_run, "Print programs, environment and log folders; start nothing")
      .text("report", flags.report, "File for a page about the run: timelines, waiting, calls, failures")
      .text("trace-dir", flags.trace_dir, "Folder for the last calls of all ranks, if one fails: see retinue trace")
      .text("wrap", flags.wrap, "Command to put before the program, as 'gdb --args'")
      .text("wrap-ranks", flags.wrap_ranks, "Ranks that --wrap is for, as 0,2; all if empty");
  Group(run, "Accepted because torchrun has them")
      .text("monitor-interval", flags.monitor_interval, "Nothing is polled here")
      .text("start-method", flags.start_method, "Programs are always executed")
      .text("event-log-handler", flags.event_log_handler, "null")
      .text("logs-specs", flags.logs_specs, "default");
}

}  // namespace retinue
