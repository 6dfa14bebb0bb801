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

void declare_what_runs(CLI::App& run, RunFlags& flags) {
  Group(run, "Program (can be repeated for each program of the job)")
      .text("-n,nproc-per-node", flags.program.count,
            "Number of ranks, or auto (one per GPU, else one per CPU), cpu, gpu")
      .text("role", flags.program.role, "ROLE_NAME of these ranks, and the prefix of their tee'd lines")
      .flag("no-python", flags.no_python, "Execute the program as it is, even if it is a .py file")
      .flag("-m,module", flags.module, "The program is a Python module: python -u -m")
      .flag("run-path", flags.run_path, "Run the script with Python's runpy.run_path()");
  Group(run, "Output")
      .text("log-dir", flags.log_dir,
            "Folder for log files: DIR/<run id>/attempt_<n>/<local rank>/stdout.log and others")
      .text("-r,redirects", flags.redirects,
            "Streams that go to files only: 1 stdout, 2 stderr, 3 both, or by rank, for example 0:3,1:2")
      .text("-t,tee", flags.tee, "Streams that go to files and the console; values as for --redirects")
      .text("local-ranks-filter", flags.local_ranks_filter,
            "Local ranks whose output the console shows, for example 0,2; default: all")
      .text("console-filters", flags.console_filters,
            "Show only tee'd lines that contain one of these texts, for example error,loss")
      .text("duplicate-stdout-filters", flags.duplicate_stdout_filters,
            "Copy tee'd lines of stdout that contain one of these texts to filtered_stdout.log")
      .text("duplicate-stderr-filters", flags.duplicate_stderr_filters, "The same for stderr, to filtered_stderr.log");
  Group(run, "Restarts, signals and input")
      .text("max-restarts", flags.max_restarts, "How many times all ranks are started again after a failure")
      .text("signals-to-handle", flags.signals,
            "Signals that end the job; the ranks get the signal first, then SIGKILL")
      .text("shutdown-timeout", flags.shutdown_timeout, "Seconds between the first signal and SIGKILL (30)")
      .text("stdin", flags.input, "Rank that reads standard input, or none; default: all ranks read files and pipes");
}

}  // namespace

std::string variable_of_flag(const std::string& long_name) {
  const std::string own = "RETINUE_" + upper_snake(long_name);
  return find_variable(own.c_str()) ? own : "PET_" + upper_snake(long_name);
}

void declare_run_flags(CLI::App& run, RunFlags& flags) {
  declare_what_runs(run, flags);
  Group(run, "World")
      .text("master-addr", flags.master_addr, "MASTER_ADDR (127.0.0.1)")
      .text("master-port", flags.master_port, "MASTER_PORT; default: a free port")
      .text("rdzv-id", flags.rdzv_id, "Name of the run: TORCHELASTIC_RUN_ID and the folder of its logs")
      .flag("standalone", flags.standalone, "One machine, with a random run id unless --rdzv-id gives one")
      .text("nnodes", flags.nnodes, "Number of machines; must be 1")
      .text("node-rank", flags.node_rank, "Rank of this machine; must be 0")
      .text("rdzv-backend", flags.rdzv_backend, "static or c10d, which are the same on one machine")
      .text("rdzv-endpoint", flags.rdzv_endpoint, "This machine, for example localhost or localhost:29400")
      .text("rdzv-conf", flags.rdzv_conf, "Rendezvous settings, key=value,...; no effect on one machine")
      .text("local-addr", flags.local_addr, "Address of this machine: the default of MASTER_ADDR")
      .flag("virtual-local-rank", flags.virtual_local_rank, "LOCAL_RANK=0 for all ranks, and one visible GPU for each")
      .text("numa-binding", flags.numa_binding,
            "Bind ranks to CPUs by NUMA topology: node, socket, exclusive or core-complex");
  Group(run, "Debugging and tracing")
      .flag("dry-run", flags.dry_run, "Print programs, environment and log folders; start nothing")
      .text("report", flags.report, "File for an HTML report of the run: timelines, waits, calls, failures")
      .text("trace-dir", flags.trace_dir, "Folder for the last calls of all ranks if a rank fails; see retinue trace")
      .text("wrap", flags.wrap, "Command that runs the program, for example 'gdb --args'")
      .text("wrap-ranks", flags.wrap_ranks, "Ranks that --wrap applies to, for example 0,2; default: all");
  Group(run, "Accepted for compatibility with torchrun")
      .text("monitor-interval", flags.monitor_interval, "No effect: Retinue does not poll")
      .text("start-method", flags.start_method, "No effect: programs are always executed")
      .text("event-log-handler", flags.event_log_handler, "Must be null")
      .text("logs-specs", flags.logs_specs, "Must be default");
}

}  // namespace retinue
