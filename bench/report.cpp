#include "report.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "build_facts.h"

namespace retinue::bench {
namespace {

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

std::string commit() {
  const std::unique_ptr<FILE, int (*)(FILE*)> git(
      popen(fmt::format("git -C '{}' describe --always --dirty 2>/dev/null", source_folder()).c_str(), "re"), pclose);
  std::array<char, 128> text{};
  if (!git || std::fgets(text.data(), text.size(), git.get()) == nullptr) return "unknown";
  std::string name = text.data();
  name.erase(name.find_last_not_of('\n') + 1);
  return name;
}

/// Small figures with more digits.
std::string cell(const std::optional<double>& value) {
  if (!value) return "-";
  return fmt::format("{:.{}f}", *value, *value >= 100 ? 1 : *value >= 10 ? 2 : *value >= 0.1 ? 3 : 4);
}

std::string text_of(const char* whose, const std::optional<Costs>& costs) {
  if (!costs) return "";
  return fmt::format("  {}: cpu {} us, {} page faults, {} MB", whose, cell(costs->cpu_us), cell(costs->page_faults),
                     cell(costs->memory_mb));
}

nlohmann::json to_json(const Costs& costs) {
  return {{"cpu_us", costs.cpu_us}, {"page_faults", costs.page_faults}, {"memory_mb", costs.memory_mb}};
}

nlohmann::json to_json(const Row& row) {
  nlohmann::json json = {{"case", row.case_name}, {"variant", row.variant}, {"ranks", row.ranks}, {"bytes", row.bytes}};
  if (row.ours_us) json["ours_us"] = *row.ours_us;
  if (row.p99_us) json["p99_us"] = *row.p99_us;
  if (!row.peer.empty()) json["peer"] = row.peer;
  if (row.peer_us) json["peer_us"] = *row.peer_us;
  if (row.peer_p99_us) json["peer_p99_us"] = *row.peer_p99_us;
  if (row.ratio) json["ratio"] = *row.ratio;
  if (row.costs) json["costs"] = to_json(*row.costs);
  if (row.peer_costs) json["peer_costs"] = to_json(*row.peer_costs);
  if (row.switches) json["switches"] = *row.switches;
  if (!row.skipped.empty()) json["skipped"] = row.skipped;
  return json;
}

}  // namespace

int usable_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof cpus, &cpus);
  return CPU_COUNT(&cpus);
}

std::string machine_line() {
  utsname system{};
  uname(&system);
  const double memory_bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return fmt::format("{}, {} CPUs usable, {:.0f} GiB, Linux {}; retinue {}, commit {}", cpu_model(), usable_cpus(),
                     memory_bytes / (1 << 30), system.release, version(), commit());
}

std::string table(const std::vector<Row>& rows) {
  std::string text = fmt::format("{:<15}{:<22}{:>6}{:>10}{:>13}{:>13}  {:<30}{:>13}{:>10}\n", "case", "variant",
                                 "ranks", "bytes", "ours us", "p99 us", "peer", "peer us", "ratio");
  for (const Row& row : rows) {
    const std::string switches =
        row.switches ? fmt::format("  {} switches of a rank in a call", cell(row.switches)) : "";
    text += fmt::format("{:<15}{:<22}{:>6}{:>10}{:>13}{:>13}  {:<30}{:>13}{:>10}{}{}\n", row.case_name, row.variant,
                        row.ranks, row.bytes, cell(row.ours_us), cell(row.p99_us), row.peer, cell(row.peer_us),
                        cell(row.ratio), switches + text_of("ours", row.costs) + text_of("peer", row.peer_costs),
                        row.skipped.empty() ? "" : "  skipped: " + row.skipped);
  }
  return text;
}

void write_json(const std::vector<Row>& rows, const std::string& path) {
  nlohmann::json array = nlohmann::json::array();
  for (const Row& row : rows) array.push_back(to_json(row));
  std::ofstream file(path);
  file << array.dump(2) << "\n";
  if (!file.flush()) throw std::runtime_error(fmt::format("cannot write {}", path));
}

}  // namespace retinue::bench
