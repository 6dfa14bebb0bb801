#include "run_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "command_line.h"
#include "os/files/environment.h"
#include "retinue/base/error.h"
#include "run_flags.h"
#include "text_lists.h"

namespace retinue {
namespace {

constexpr const char* kOneMachine = "this version of Retinue starts jobs on one machine";

bool is_count_flag(const std::string& word) {
  for (const std::string flag : {"--nproc-per-node", "--nproc_per_node"})
    if (word == flag || word.starts_with(flag + "=")) return true;
  return word.starts_with("-n") && !word.starts_with("-no");
}

void check_command(const std::vector<std::string>& command) {
  if (command.empty()) throw UsageError("the program to run is missing: retinue run -n 2 ./program arguments...");
  if (command.front().empty()) throw UsageError("the program to run has an empty name");
}

CommandForm form_of(const RunFlags& flags) {
  if (flags.no_python + flags.module + flags.run_path > 1)
    throw UsageError("--no-python, --module and --run-path are mutually exclusive: give only one of them");
  if (flags.no_python) return CommandForm::kProgram;
  if (flags.module) return CommandForm::kModule;
  return flags.run_path ? CommandForm::kRunPath : CommandForm::kAutomatic;
}

/// A further program of the job: its own -n, --role, --no-python, -m, --run-path, then program and arguments.
ProgramSection further_section(const std::vector<std::string>& words) {
  RunFlags flags;
  CLI::App parser("", "retinue run");
  parser.add_option("-n,--nproc-per-node,--nproc_per_node", flags.program.count);
  parser.add_option("--role", flags.program.role);
  parser.add_flag("--no-python,--no_python", flags.no_python);
  parser.add_flag("-m,--module", flags.module);
  parser.add_flag("--run-path,--run_path", flags.run_path);
  try {
    CommandLine line = split_command_line(parser, words);
    std::ranges::reverse(line.flags);  // CLI11 takes them from the end.
    parser.parse(line.flags);
    flags.program.command = line.program;
  } catch (const std::runtime_error& error) {  // CLI11's and ours.
    throw UsageError(
        fmt::format("after ':' only -n, --role, --no-python, -m and --run-path can precede the program; put flags of "
                    "the whole job before the first program: {}",
                    error.what()));
  }
  flags.program.form = form_of(flags);
  check_command(flags.program.command);
  return flags.program;
}

std::vector<ProgramSection> sections_of(const RunFlags& flags, std::vector<std::string> rest) {
  std::vector<ProgramSection> sections = {flags.program};
  sections.front().form = form_of(flags);
  if (!rest.empty() && rest.front() == "--") {
    rest.erase(rest.begin());  // All after it is one program's, colons too.
    check_command(rest);
    sections.front().command = rest;
    return sections;
  }
  std::vector<std::vector<std::string>> parts(1);
  for (std::size_t at = 0; at < rest.size(); ++at) {
    const bool separates = rest[at] == ":" && at + 1 < rest.size() && is_count_flag(rest[at + 1]);
    if (separates) {
      parts.emplace_back();
    } else {
      parts.back().push_back(rest[at]);
    }
  }
  check_command(parts.front());
  sections.front().command = parts.front();
  for (std::size_t part = 1; part < parts.size(); ++part) sections.push_back(further_section(parts[part]));
  return sections;
}

bool is_this_machine(const std::string& endpoint) {
  std::string host = endpoint;
  if (host.starts_with("[")) {
    host = host.substr(1, host.find(']') - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    host.resize(host.find(':'));
  }
  char own[256] = {};
  gethostname(own, sizeof own - 1);
  return host == "localhost" || host.starts_with("127.") || host == "::1" || host == own;
}

void refuse_several_machines(const RunFlags& flags) {
  if (flags.nnodes != "1" && flags.nnodes != "1:1")
    throw UsageError(fmt::format("--nnodes {}: {}; give 1 or 1:1", flags.nnodes, kOneMachine));
  if (flags.node_rank != "0") throw UsageError(fmt::format("--node-rank {}: {}; give 0", flags.node_rank, kOneMachine));
  if (flags.rdzv_backend != "static" && flags.rdzv_backend != "c10d")
    throw UsageError(
        fmt::format("--rdzv-backend {}: {}, which needs no other rendezvous; give static or c10d, or omit the flag",
                    flags.rdzv_backend, kOneMachine));
  if (!flags.rdzv_endpoint.empty() && !is_this_machine(flags.rdzv_endpoint))
    throw UsageError(
        fmt::format("--rdzv-endpoint {}: {}, and this endpoint is on another machine; give localhost, or omit the flag",
                    flags.rdzv_endpoint, kOneMachine));
  for (const std::string& setting : split_at_commas(flags.rdzv_conf)) {
    if (setting.find('=') == std::string::npos)
      throw UsageError(fmt::format("--rdzv-conf: '{}' is not a key=value pair", setting));
    if (setting == "is_host=0" || setting == "is_host=false" || setting == "is_host=False")
      throw UsageError(
          fmt::format("--rdzv-conf {}: {}, so this machine is the host; omit the setting", setting, kOneMachine));
  }
}

void refuse_what_is_not_there(const RunFlags& flags) {
  if (flags.event_log_handler != "null")
    throw UsageError(fmt::format("--event-log-handler {}: only null is supported", flags.event_log_handler));
  if (!flags.logs_specs.empty() && flags.logs_specs != "default")
    throw UsageError(
        fmt::format("--logs-specs {}: Python plug-ins are not supported; omit the flag", flags.logs_specs));
  for (const char* known : {"spawn", "fork", "forkserver"})
    if (flags.start_method == known) return;
  throw UsageError(fmt::format("--start-method {}: give spawn, fork or forkserver", flags.start_method));
}

CpuAffinity affinity_of(const std::string& numa_binding) {
  if (numa_binding.empty()) return {};
  if (numa_binding == "node") return CpuAffinity::node();
  if (numa_binding == "socket") return CpuAffinity::socket();
  if (numa_binding == "exclusive") return CpuAffinity::exclusive();
  if (numa_binding == "core-complex") return CpuAffinity::core_complex();
  throw UsageError(fmt::format("--numa-binding '{}': give node, socket, exclusive or core-complex", numa_binding));
}

std::string random_id() {
  std::ifstream file("/proc/sys/kernel/random/uuid");
  std::string id;
  if (!std::getline(file, id))
    throw UsageError(
        "--standalone: making a random run id failed: /proc/sys/kernel/random/uuid cannot be read; give --rdzv-id, "
        "too");
  return id;
}

void read_world(const RunFlags& flags, RunOptions& options) {
  refuse_several_machines(flags);
  options.run_id = flags.standalone && flags.rdzv_id == "none" ? random_id() : flags.rdzv_id;
  if (options.run_id.empty() || options.run_id.find('/') != std::string::npos || options.run_id.starts_with("."))
    throw UsageError(
        fmt::format("--rdzv-id '{}': the run id is also the name of a folder, so it must not be empty, begin with a "
                    "dot or contain a slash",
                    options.run_id));
  const std::string local = flags.local_addr.empty() ? "127.0.0.1" : flags.local_addr;
  options.master_addr = flags.master_addr.empty() ? find_variable("MASTER_ADDR").value_or(local) : flags.master_addr;
  const std::string port = flags.master_port.empty() ? find_variable("MASTER_PORT").value_or("") : flags.master_port;
  if (!port.empty() && port != "0") options.master_port = number_of(port, "--master-port", 1);
  if (options.master_port.value_or(1) > 65535)
    throw UsageError(fmt::format("--master-port {}: a port is at most 65535", port));
}

void read_end(const RunFlags& flags, RunOptions& options) {
  options.max_restarts = number_of(flags.max_restarts, "--max-restarts", 0);
  options.ending_signals = signals_of(flags.signals);
  const std::string timeout = flags.shutdown_timeout.empty()
                                  ? find_variable("TORCH_ELASTIC_SHUTDOWN_TIMEOUT").value_or("30")
                                  : flags.shutdown_timeout;
  options.shutdown_timeout = std::chrono::seconds(number_of(timeout, "--shutdown-timeout", 0));
}

}  // namespace

RunOptions make_run_options(const RunFlags& flags, const std::vector<std::string>& rest) {
  refuse_what_is_not_there(flags);
  RunOptions options;
  options.programs = sections_of(flags, rest);
  read_world(flags, options);
  read_end(flags, options);
  options.log_dir = flags.log_dir;
  options.redirects = StdByRank::parse(flags.redirects);
  options.tee = StdByRank::parse(flags.tee);
  options.console_ranks = ranks_of(flags.local_ranks_filter, "--local-ranks-filter");
  options.console_filters = split_at_commas(flags.console_filters);
  options.duplicate_stdout_filters = split_at_commas(flags.duplicate_stdout_filters);
  options.duplicate_stderr_filters = split_at_commas(flags.duplicate_stderr_filters);
  options.virtual_local_rank = flags.virtual_local_rank;
  options.cpu_affinity = affinity_of(flags.numa_binding);
  options.input = flags.input;
  options.wrap = shell_words(flags.wrap);
  options.wrap_ranks = ranks_of(flags.wrap_ranks, "--wrap-ranks");
  if (options.wrap.empty() && !options.wrap_ranks.empty())
    throw UsageError(
        "--wrap-ranks selects the ranks that --wrap applies to: give --wrap, too, for example --wrap 'gdb --args'");
  options.dry_run = flags.dry_run;
  options.report = flags.report;
  options.trace_dir = flags.trace_dir;
  return options;
}

}  // namespace retinue
