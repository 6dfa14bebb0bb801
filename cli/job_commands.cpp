#include "job_commands.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "base/parse_number.h"

namespace retinue {
namespace {

constexpr const char* kJobHelp = "Name of the job, its id, a unique prefix of either, or the pid of its program";
constexpr const char* kContextHelp = "Only ranks of this context, as `retinue ps` lists it";

/// CLI11's own says all of the numbers that a double can be.
std::string not_negative(const std::string& text) {
  const std::optional<double> number = parse_number<double>(text);
  return number && *number >= 0 ? "" : "'" + text + "' is not a number of at least 0";
}

std::string positive(const std::string& text) {
  const std::optional<double> number = parse_number<double>(text);
  return number && *number > 0 ? "" : "'" + text + "' is not a number greater than 0";
}

}  // namespace

bool is_job_command(const std::string& word) {
  return std::ranges::count(std::array<std::string_view, 6>{"ps", "stop", "stacks", "debug", "trace", "top"}, word) > 0;
}

JobCommands::JobCommands(CLI::App& app)
    : ps_(app.add_subcommand("ps", "List your running jobs with their ranks, states, CPU time and memory")),
      stop_(app.add_subcommand("stop", "Stop a job's ranks: SIGTERM, then SIGKILL for ranks that do not end in time")),
      stacks_(app.add_subcommand("stacks", "Print the stack of every thread of a job's ranks")),
      debug_(app.add_subcommand("debug", "Attach gdb to a rank; the job's deadlines pause until gdb ends")),
      trace_(
          app.add_subcommand("trace", "Write the last calls of all ranks, as a timeline or as dumps for torchfrtrace")),
      top_(app.add_subcommand("top", "Show what a job's ranks are doing, updated each second")) {
  ps_->add_flag("--all", ps_options_.all, "Also list other users' jobs; for root only");
  ps_->add_flag("--json", ps_options_.json, "Print JSON, for programs");
  stop_->add_option("job", stop_options_.job, kJobHelp)->required();
  stop_
      ->add_option("--timeout", stop_options_.timeout_seconds,
                   "Seconds to wait until the ranks have ended; default: what their stop policies allow, plus 10")
      ->check(not_negative);
  stacks_->add_option("job", stacks_options_.job, kJobHelp)->required();
  stacks_->add_option("--rank", stacks_options_.rank, "Only the stacks of this rank")->check(not_negative);
  stacks_->add_option("--context", stacks_options_.context, kContextHelp)->check(not_negative);
  stacks_->add_option("--timeout", stacks_options_.timeout_seconds, "Maximum time for each rank, in seconds")
      ->check(positive)
      ->capture_default_str();
  debug_->add_option("job", debug_options_.job, kJobHelp)->required();
  debug_->add_option("--rank", debug_options_.rank, "The rank")->required()->check(not_negative);
  debug_->add_option("--context", debug_options_.context, kContextHelp)->check(not_negative);
  trace_->add_option("job", trace_options_.job, kJobHelp)->required();
  trace_->add_option("--format", trace_options_.format, "chrome, for Perfetto, or pytorch, for torchfrtrace")
      ->check(CLI::IsMember({"chrome", "pytorch"}))
      ->capture_default_str();
  trace_->add_option("--out", trace_options_.out, "Output file, or with pytorch folder; - is standard output");
  trace_->add_option("--context", trace_options_.context, kContextHelp)->check(not_negative);
  top_->add_option("job", top_options_.job, kJobHelp)->required();
  top_->add_option("--interval", top_options_.interval_seconds, "Seconds between two updates")
      ->check(positive)
      ->capture_default_str();
  top_->add_flag("--once", top_options_.once, "Print one measurement, over one interval, as plain lines");
  top_->add_flag("--json", top_options_.json, "The same as JSON, for programs");
}

int JobCommands::run() const {
  if (ps_->parsed()) return ps_command(ps_options_);
  if (stop_->parsed()) return stop_command(stop_options_);
  if (stacks_->parsed()) return stacks_command(stacks_options_);
  if (top_->parsed()) return top_command(top_options_);
  if (trace_->parsed()) return trace_command(trace_options_);
  return debug_command(debug_options_);
}

}  // namespace retinue
