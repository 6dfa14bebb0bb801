#include "run_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "console_input.h"
#include "dry_run.h"
#include "held_port.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/job_name.h"
#include "process/observe/run_report.h"
#include "rank_plan.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "retinue/os/detail/standard_error.h"
#include "run_logs.h"
#include "signal_forwarder.h"

namespace retinue {
namespace {

int exit_code_of(const ProcessException& failure) {
  const RankOutcome& outcome = failure.outcome();
  if (outcome.signal != 0) return 128 + outcome.signal;
  return outcome.exit_code != 0 ? outcome.exit_code : 1;
}

/// The role that all ranks have; "rank" where they differ, so that no line bears a wrong name.
std::string common_role(const RunOptions& options) {
  const std::string& first = options.programs.front().role;
  const auto has_it = [&](const ProgramSection& section) { return section.role == first; };
  return std::ranges::all_of(options.programs, has_it) ? first : "rank";
}

StartOptions start_options(const RunOptions& options, const std::string& log_dir) {
  StartOptions start;
  start.name = common_role(options);
  start.stop.terminate_wait = options.shutdown_timeout;
  start.log_dir = log_dir;
  start.trace_dir = options.trace_dir;
  start.redirects = options.redirects;
  start.tee = options.tee;
  start.console_ranks = options.console_ranks;
  start.console_filters = options.console_filters;
  start.duplicate_stdout_filters = options.duplicate_stdout_filters;
  start.duplicate_stderr_filters = options.duplicate_stderr_filters;
  start.cpu_affinity = options.cpu_affinity;
  if (const char* prefix = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")) start.line_prefix = prefix;
  return start;
}

/// As `retinue ps` lists it: by the run id where one was given, else by its first program.
void name_job(const RunOptions& options) {
  const bool has_id = options.run_id != "none";
  if (!has_id && std::getenv("RETINUE_JOB_NAME") != nullptr) return;
  const std::string program = options.programs.front().command.front();
  set_job_name(Runtime::current().memory()->header(),
               has_id ? options.run_id : fmt::format("{}-{}", program.substr(program.rfind('/') + 1), getpid()));
}

/// The signal by which the end was asked for, by a signal to us or by `retinue stop`; 0 if none was.
int ended_by(const SignalForwarder& signals) {
  if (signals.ended_by() != 0) return signals.ended_by();
  return Runtime::current().memory()->header().stop_asked.load(std::memory_order_acquire);
}

/// Who sits before this command did not ask for it: it says by whom it was stopped.
int exit_code_at_end(const SignalForwarder& signals) {
  const int signal = ended_by(signals);
  if (signal != 0 && signals.ended_by() == 0) write_standard_error("retinue run: stopped by `retinue stop`\n");
  return signal == 0 ? 0 : 128 + signal;
}

/// One life of all ranks. Errors: ProcessException when one fails.
void run_attempt(const RunOptions& options, const std::vector<PlannedRank>& plan, const Devices& devices, int number,
                 const std::string& log_dir, SignalForwarder& signals) {
  std::unique_ptr<HeldPort> port;  // Held until the ranks have ended.
  if (!options.master_port) port = std::make_unique<HeldPort>();
  const Attempt attempt{number, std::to_string(port ? port->number() : *options.master_port)};
  SignalForwarder::Receiver receiver(signals, [&] {
    return start_processes(start_options(options, log_dir), rank_programs(options, plan, attempt, devices));
  });
  receiver.ranks().join();
}

}  // namespace

int run_command(const RunOptions& options) {
  const Devices devices = Devices::for_plan(options);
  const std::vector<PlannedRank> plan = plan_ranks(options, devices);
  if (options.dry_run) {
    std::fputs(dry_run_text(options, plan, devices).c_str(), stdout);
    return 0;
  }
  name_job(options);
  if (!options.report.empty()) ask_for_report(*Runtime::current().memory(), options.report);
  SignalForwarder signals(options.ending_signals);
  std::unique_ptr<ConsoleInput> input;
  if (!options.input.empty() && options.input != "none") input = std::make_unique<ConsoleInput>();
  RunLogs logs(options.log_dir, options.run_id);
  for (int number = 0;; ++number) {
    const std::string log_dir = logs.make_attempt(number);
    if (number == 0 && !log_dir.empty())
      write_standard_error(fmt::format("retinue run: logs are in {}\n", logs.run_folder()));
    try {
      run_attempt(options, plan, devices, number, log_dir, signals);
      return exit_code_at_end(signals);
    } catch (const ProcessException& failure) {
      write_standard_error(fmt::format("retinue run: {}\n", failure.what()));
      if (ended_by(signals) != 0) return exit_code_at_end(signals);
      if (number >= options.max_restarts) return exit_code_of(failure);
    }
    write_standard_error(fmt::format("retinue run: starting all {} ranks again: restart {} of {}\n", plan.size(),
                                     number + 1, options.max_restarts));
  }
}

}  // namespace retinue
