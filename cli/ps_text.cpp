#include "ps_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

namespace retinue {
namespace {

std::string age_text(std::chrono::nanoseconds age) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(age).count();
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

/// Endings are sentences: they stand where the command did.
std::string row_of(const RankView& rank) {
  const bool has_ended = !rank.end.empty();
  return fmt::format("  {:>7} {:>5} {:>8} {:<11} {:>9.2f} {:>12}  {:<21} {}", rank.context, rank.rank, rank.pid,
                     has_ended ? rank.state : state_of(rank), seconds_of(rank.cpu), memory_text(rank.resident_bytes),
                     call_text(rank), has_ended ? rank.end : rank.command);
}

nlohmann::ordered_json json_of(const std::optional<CurrentCall>& call) {
  if (!call) return nullptr;
  return {{"kind", call->kind},
          {"group", call->group},
          {"sequence", call->sequence},
          {"site", call->site},
          {"seconds", seconds_of(call->waiting)}};
}

nlohmann::ordered_json json_of(const ListedJob& listed) {
  const FoundJob& job = listed.job;
  nlohmann::ordered_json json = {{"id", job.id}, {"uid", job.user}, {"guardian_pid", job.guardian}};
  if (!job.memory) {
    json["problem"] = job.problem;
    return json;
  }
  json["name"] = job.name();
  json["program_pid"] = job.program();
  json["debugged"] = is_debugged(*job.memory);
  json["age_seconds"] = seconds_of(age_of(*job.memory));
  json["ranks"] = nlohmann::ordered_json::array();
  for (const RankView& rank : listed.ranks) json["ranks"].push_back(rank_json(rank));
  return json;
}

}  // namespace

std::string memory_text(std::uint64_t bytes) {
  return bytes == 0 ? "-" : fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::string state_of(const RankView& rank) {
  if (!rank.end.empty()) return rank.end;
  return rank.process_state == 'D' ? rank.state + " (D)" : rank.state;
}

std::string call_text(const RankView& rank) {
  if (!rank.call) return "-";
  return fmt::format("{} {:.1f} s", rank.call->kind, seconds_of(rank.call->waiting));
}

std::string job_heading(const FoundJob& job) {
  const std::string user = job.user == geteuid() ? "" : fmt::format(", user {}", job.user);
  const std::string debugged = is_debugged(*job.memory) ? ", debugged: its deadlines pause" : "";
  return fmt::format("{}  (id {}, program {}, guardian {}, age {}{}{})", job.name(), job.id, job.program(),
                     job.guardian, age_text(age_of(*job.memory)), user, debugged);
}

nlohmann::ordered_json rank_json(const RankView& rank) {
  return {{"context", rank.context},
          {"rank", rank.rank},
          {"local_rank", rank.local_rank},
          {"pid", rank.pid},
          {"state", rank.state},
          {"end", rank.end},
          {"process_state", rank.process_state == 0 ? "" : std::string(1, rank.process_state)},
          {"cpu_seconds", seconds_of(rank.cpu)},
          {"resident_bytes", rank.resident_bytes},
          {"call", json_of(rank.call)},
          {"command", rank.command}};
}

std::string ps_text(const std::vector<ListedJob>& jobs, std::size_t columns) {
  std::string text;
  for (const auto& [job, ranks] : jobs) {
    if (!job.memory) continue;
    text += job_heading(job) + "\n";
    if (ranks.empty()) text += "  (no ranks now)\n";
    if (!ranks.empty())
      text += fmt::format("  {:>7} {:>5} {:>8} {:<11} {:>9} {:>12}  {:<21} {}\n", "CONTEXT", "RANK", "PID", "STATE",
                          "CPU s", "MEMORY", "CALL", "COMMAND");
    for (const RankView& rank : ranks) {
      const std::string row = row_of(rank);
      text += (columns == 0 ? row : row.substr(0, columns)) + "\n";
    }
  }
  return text;
}

std::string ps_json(const std::vector<ListedJob>& jobs) {
  nlohmann::ordered_json json = {{"jobs", nlohmann::ordered_json::array()}};
  for (const ListedJob& job : jobs) json["jobs"].push_back(json_of(job));
  // A command line may be any bytes.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace retinue
