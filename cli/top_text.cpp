#include "top_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ps_text.h"

namespace retinue {
namespace {

/// Less than four digits and a unit, as "1.2 GB".
std::string short_number(double value, const char* unit) {
  static constexpr std::array<const char*, 5> kPrefixes = {"", "k", "M", "G", "T"};
  std::size_t prefix = 0;
  while (value >= 999.5 && prefix + 1 < kPrefixes.size()) {
    value /= 1000;
    ++prefix;
  }
  return fmt::format("{:.{}f} {}{}", value, value < 9.95 && value > 0 ? 1 : 0, kPrefixes[prefix], unit);
}

std::string straggler_line(const JobSample& sample) {
  if (!sample.straggler) return "last minute: no collective was recorded for all members of a group";
  const Straggler& worst = *sample.straggler;
  return fmt::format(
      "last minute: rank {} of context {} was the last to begin {} of {} collectives; the others waited {:.1f} s",
      worst.rank.rank, worst.rank.context, worst.last, worst.seen, seconds_of(worst.waited));
}

std::string sums_line(const JobSample& sample) {
  double cpu = 0;
  double bytes = 0;
  std::size_t alive = 0;
  for (const RankSample& rank : sample.ranks) {
    cpu += rank.cpu_percent;
    bytes += rank.bytes_per_second;
    alive += rank.view.is_alive() ? 1 : 0;
  }
  return fmt::format("{} of {} ranks are running, {:.0f} % of a CPU, {}", alive, sample.ranks.size(), cpu,
                     short_number(bytes, "B/s"));
}

std::string sample_row(const RankSample& sample) {
  const RankView& rank = sample.view;
  if (!rank.end.empty())
    return fmt::format("  {:>7} {:>5} {:>8} {:<11} {}", rank.context, rank.rank, rank.pid, rank.state, rank.end);
  const std::string site = rank.call ? fmt::format("  {} {}", rank.call->site, rank.call->group) : "";
  const std::string steps = rank.steps == 0 ? "-" : short_number(sample.steps_per_second, "");
  return fmt::format("  {:>7} {:>5} {:>8} {:<11} {:>6.0f} {:>12} {:>8} {:>8} {:>9}  {}{}", rank.context, rank.rank,
                     rank.pid, state_of(rank), sample.cpu_percent, memory_text(rank.resident_bytes), steps,
                     short_number(sample.calls_per_second, ""), short_number(sample.bytes_per_second, "B"),
                     call_text(rank), site);
}

nlohmann::ordered_json json_of(const std::optional<Straggler>& straggler) {
  if (!straggler) return nullptr;
  return {{"context", straggler->rank.context},
          {"rank", straggler->rank.rank},
          {"last", straggler->last},
          {"collectives", straggler->seen},
          {"waited_seconds", seconds_of(straggler->waited)}};
}

}  // namespace

std::vector<std::string> top_lines(const FoundJob& job, const JobSample& sample, const TextSize& size) {
  std::vector<std::string> lines = {job_heading(job), sums_line(sample), straggler_line(sample), ""};
  lines.push_back(fmt::format("  {:>7} {:>5} {:>8} {:<11} {:>6} {:>12} {:>8} {:>8} {:>9}  {}", "CONTEXT", "RANK", "PID",
                              "STATE", "CPU %", "MEMORY", "STEPS/s", "CALLS/s", "BYTES/s", "CALL"));
  std::ranges::transform(sample.ranks, std::back_inserter(lines), &sample_row);
  if (size.lines != 0 && lines.size() > size.lines) {
    const std::size_t left = lines.size() - size.lines + 1;
    lines.resize(size.lines - 1);
    lines.push_back(fmt::format("  ... {} more lines do not fit on the screen", left));
  }
  if (size.columns != 0)
    for (std::string& line : lines) line = line.substr(0, size.columns);
  return lines;
}

std::string top_json(const FoundJob& job, const JobSample& sample) {
  nlohmann::ordered_json json = {{"id", job.id}, {"name", job.name()}, {"straggler", json_of(sample.straggler)}};
  json["ranks"] = nlohmann::ordered_json::array();
  for (const RankSample& rank : sample.ranks) {
    nlohmann::ordered_json each = rank_json(rank.view);
    each["cpu_percent"] = rank.cpu_percent;
    each["steps"] = rank.view.steps;
    each["steps_per_second"] = rank.steps_per_second;
    each["calls_per_second"] = rank.calls_per_second;
    each["bytes_per_second"] = rank.bytes_per_second;
    json["ranks"].push_back(std::move(each));
  }
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace retinue
