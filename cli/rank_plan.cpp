#include "rank_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "os/files/environment.h"
#include "os/machine/cpus.h"
#include "retinue/base/error.h"
#include "text_lists.h"
#include "usable_devices.h"

namespace retinue {
namespace {

void check_rank(int rank, std::size_t world_size, const char* flag) {
  if (static_cast<std::size_t>(rank) >= world_size)
    throw UsageError(fmt::format("{} names rank {}, but the job has ranks 0 to {}", flag, rank, world_size - 1));
}

void check_named_ranks(const RunOptions& options, const Devices& devices, std::size_t world_size) {
  for (const int rank : options.wrap_ranks) check_rank(rank, world_size, "--wrap-ranks");
  for (const int rank : options.console_ranks) check_rank(rank, world_size, "--local-ranks-filter");
  if (options.redirects.largest_rank() >= 0) check_rank(options.redirects.largest_rank(), world_size, "--redirects");
  if (options.tee.largest_rank() >= 0) check_rank(options.tee.largest_rank(), world_size, "--tee");
  if (!options.input.empty() && options.input != "none")
    check_rank(number_of(options.input, "--stdin (a rank, or none)", 0), world_size, "--stdin");
  if (options.virtual_local_rank && devices.gpus.size() < world_size)
    throw UsageError(
        fmt::format("--virtual-local-rank gives each rank a GPU of its own, but there are {} ranks and {} visible "
                    "GPUs; start fewer ranks, or set CUDA_VISIBLE_DEVICES",
                    world_size, devices.gpus.size()));
}

void replace_all(std::string& text, const std::string& macro, const std::string& value) {
  for (std::size_t at = text.find(macro); at != std::string::npos; at = text.find(macro, at + value.size()))
    text.replace(at, macro.size(), value);
}

/// What stands before the command so that it runs as its form says.
std::vector<std::string> interpreter_of(const ProgramSection& section) {
  const bool is_script = section.form == CommandForm::kAutomatic && section.command.front().ends_with(".py");
  if (section.form == CommandForm::kProgram || (section.form == CommandForm::kAutomatic && !is_script)) return {};
  std::vector<std::string> words = {find_variable("PYTHON_EXEC").value_or("python3"), "-u"};
  if (section.form == CommandForm::kModule) words.emplace_back("-m");
  if (section.form == CommandForm::kRunPath)
    words.insert(words.end(), {"-c",
                               "import runpy, sys; sys.argv = sys.argv[1:]; "
                               "runpy.run_path(sys.argv[0], run_name='__main__')"});
  return words;
}

Program::Input input_of(const RunOptions& options, int rank) {
  const bool reads = options.input.empty() || options.input == std::to_string(rank);
  return reads ? Program::Input::kCallers : Program::Input::kNone;
}

}  // namespace

Devices Devices::for_plan(const RunOptions& options) {
  const bool has_all_counts = std::ranges::all_of(
      options.programs, [](const ProgramSection& section) { return is_plain_count(section.count); });
  if (has_all_counts && !options.virtual_local_rank) return {};
  return {usable_cpus(), visible_gpus()};
}

std::vector<PlannedRank> plan_ranks(const RunOptions& options, const Devices& devices) {
  std::map<std::string, int> sizes;
  std::vector<PlannedRank> ranks;
  for (const ProgramSection& section : options.programs)
    for (int left = rank_count_of(section.count, devices.cpus, devices.gpus); left > 0; --left)
      ranks.push_back({static_cast<int>(ranks.size()), sizes[section.role]++, 0, &section});
  for (PlannedRank& rank : ranks) rank.role_size = sizes[rank.section->role];
  check_named_ranks(options, devices, ranks.size());
  return ranks;
}

std::map<std::string, std::string> rank_environment(const RunOptions& options, const PlannedRank& rank,
                                                    const Attempt& attempt, const Devices& devices) {
  std::map<std::string, std::string> environment = {
      {"GROUP_RANK", "0"},
      {"GROUP_WORLD_SIZE", "1"},
      {"ROLE_RANK", std::to_string(rank.role_rank)},
      {"ROLE_NAME", rank.section->role},
      {"ROLE_WORLD_SIZE", std::to_string(rank.role_size)},
      {"MASTER_ADDR", options.master_addr},
      {"MASTER_PORT", attempt.master_port},
      {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt.number)},
      {"TORCHELASTIC_MAX_RESTARTS", std::to_string(options.max_restarts)},
      {"TORCHELASTIC_RUN_ID", options.run_id},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", find_variable("TORCH_NCCL_ASYNC_ERROR_HANDLING").value_or("1")}};
  if (options.virtual_local_rank) {
    environment.emplace("LOCAL_RANK", "0");
    environment["CUDA_VISIBLE_DEVICES"] = devices.gpus.at(static_cast<std::size_t>(rank.rank));
  }
  return environment;
}

std::vector<std::string> rank_command(const RunOptions& options, const PlannedRank& rank) {
  std::vector<std::string> words;
  const bool is_wrapped = options.wrap_ranks.empty() || std::ranges::count(options.wrap_ranks, rank.rank) > 0;
  if (is_wrapped) words = options.wrap;
  const std::vector<std::string> interpreter = interpreter_of(*rank.section);
  words.insert(words.end(), interpreter.begin(), interpreter.end());
  const std::string local_rank = std::to_string(options.virtual_local_rank ? 0 : rank.rank);
  for (std::string word : rank.section->command) {
    replace_all(word, "${local_rank}", local_rank);
    replace_all(word, "${rank}", std::to_string(rank.rank));
    replace_all(word, "${role_name}", rank.section->role);
    words.push_back(std::move(word));
  }
  return words;
}

std::vector<Program> rank_programs(const RunOptions& options, const std::vector<PlannedRank>& ranks,
                                   const Attempt& attempt, const Devices& devices) {
  std::vector<Program> programs;
  for (const PlannedRank& rank : ranks) {
    std::vector<std::string> words = rank_command(options, rank);
    Program program;
    program.file = words.front();
    program.arguments.assign(words.begin() + 1, words.end());
    program.environment = rank_environment(options, rank, attempt, devices);
    program.input = input_of(options, rank.rank);
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace retinue
