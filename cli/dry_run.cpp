#include "dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "os/machine/cpus.h"
#include "text_lists.h"

namespace retinue {
namespace {

std::string place_of(Std stream, const std::string& name, int rank, const RunOptions& options) {
  const bool is_filed = has(options.redirects.of(rank), stream) || has(options.tee.of(rank), stream);
  const bool is_shown = has(options.tee.of(rank), stream) || !has(options.redirects.of(rank), stream);
  const bool is_hidden = !options.console_ranks.empty() && std::ranges::count(options.console_ranks, rank) == 0;
  const std::string folder =
      options.log_dir.empty() ? "<temporary folder>" : fmt::format("{}/{}/attempt_0", options.log_dir, options.run_id);
  std::string text;
  if (is_filed) text = fmt::format("{}/{}/{}.log", folder, rank, name);
  if (is_shown && !is_hidden) text += text.empty() ? "console" : " and console";
  return text.empty() ? "nowhere" : text;
}

std::string cpus_text(const RunOptions& options, const RankPlace& place) {
  if (options.cpu_affinity.kind() == CpuAffinity::Kind::kNone) return "";
  return fmt::format(", on CPUs {}", cpu_list_text(place.cpus));
}

}  // namespace

std::string dry_run_text(const RunOptions& options, const std::vector<PlannedRank>& plan, const Devices& devices) {
  const std::string port = options.master_port ? std::to_string(*options.master_port) : "<a free port>";
  const std::vector<Program> programs = rank_programs(options, plan, {0, port}, devices);
  const std::vector<RankPlace> places = rank_places(options.cpu_affinity, static_cast<int>(programs.size()));
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  std::string text;
  for (std::size_t index = 0; index < programs.size(); ++index) {
    const int rank = static_cast<int>(index);
    std::map<std::string, std::string> environment = programs[index].environment;
    environment.insert({{"RANK", std::to_string(rank)},
                        {"LOCAL_RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(programs.size())},
                        {"LOCAL_WORLD_SIZE", std::to_string(programs.size())},
                        {"OMP_NUM_THREADS", threads != nullptr ? threads : std::to_string(places[index].threads)}});
    text += fmt::format("# rank {}: stdout to {}, stderr to {}{}\n", rank, place_of(Std::kOut, "stdout", rank, options),
                        place_of(Std::kErr, "stderr", rank, options), cpus_text(options, places[index]));
    for (const auto& [name, value] : environment) text += fmt::format("{}={} ", name, shell_quoted(value));
    text += shell_quoted(programs[index].file);
    for (const std::string& argument : programs[index].arguments) text += fmt::format(" {}", shell_quoted(argument));
    if (programs[index].input == Program::Input::kNone) text += " </dev/null";
    text += "\n";
  }
  return text;
}

}  // namespace retinue
