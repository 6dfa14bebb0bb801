#include "launch/placement/numa_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The ranks of one node, which are consecutive.
struct Neighbours {
  std::size_t first = 0;
  std::size_t count = 0;
};

std::map<int, std::vector<Cpu>> nodes_of(const std::vector<Cpu>& cpus) {
  std::map<int, std::vector<Cpu>> nodes;
  for (const Cpu& cpu : cpus) nodes[cpu.node].push_back(cpu);
  return nodes;
}

template <class Predicate>
std::vector<int> numbers_where(const std::vector<Cpu>& cpus, Predicate&& belongs) {
  std::vector<int> numbers;
  for (const Cpu& cpu : cpus)
    if (belongs(cpu)) numbers.push_back(cpu.number);
  return numbers;
}

std::vector<int> cores_of_rank(const std::vector<Cpu>& node, std::size_t rank, const Neighbours& ranks) {
  std::vector<int> cores;
  for (const Cpu& cpu : node) cores.push_back(cpu.core);
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  if (cores.size() < ranks.count)
    throw UsageError(
        fmt::format("exclusive cores: memory node {} has {} cores that this process may use, but {} ranks are to run "
                    "there ({} to {}): start fewer ranks, or bind them by node or socket, where they share cores",
                    node.front().node, cores.size(), ranks.count, ranks.first, ranks.first + ranks.count - 1));
  // What remains of an uneven division goes to the first ranks, a core each.
  const std::size_t index = rank - ranks.first;
  const std::size_t each = cores.size() / ranks.count;
  const std::size_t rest = cores.size() % ranks.count;
  const std::size_t begin = index * each + std::min(index, rest);
  const std::size_t end = begin + each + (index < rest ? 1 : 0);
  return numbers_where(node, [&](const Cpu& cpu) { return cpu.core >= cores[begin] && cpu.core <= cores[end - 1]; });
}

std::vector<int> core_complex_of_rank(const std::vector<Cpu>& node, std::size_t rank, const Neighbours& ranks) {
  std::map<int, std::vector<int>> by_cache;
  for (const Cpu& cpu : node) {
    if (cpu.cache == Cpu::kNoCache)
      throw UsageError(
          fmt::format("core complexes: the kernel does not say which CPUs share the last-level cache of CPU {} (there "
                      "is no /sys/devices/system/cpu/cpu{}/cache, as in some virtual machines): bind by node, socket "
                      "or exclusive instead",
                      cpu.number, cpu.number));
    by_cache[cpu.cache].push_back(cpu.number);
  }
  std::vector<std::vector<int>> complexes;
  for (auto& [cache, cpus] : by_cache) complexes.push_back(std::move(cpus));
  std::stable_sort(complexes.begin(), complexes.end(),
                   [](const auto& left, const auto& right) { return left.size() > right.size(); });
  return complexes[(rank - ranks.first) % complexes.size()];
}

std::vector<int> place_of(const std::vector<Cpu>& cpus, const std::vector<Cpu>& node, std::size_t rank,
                          const Neighbours& ranks, CpuAffinity::Kind kind) {
  if (kind == CpuAffinity::Kind::kExclusive) return cores_of_rank(node, rank, ranks);
  if (kind == CpuAffinity::Kind::kCoreComplex) return core_complex_of_rank(node, rank, ranks);
  if (kind == CpuAffinity::Kind::kNode) return numbers_where(node, [](const Cpu&) { return true; });
  return numbers_where(cpus, [&](const Cpu& cpu) { return cpu.package == node.front().package; });
}

}  // namespace

bool is_by_node(CpuAffinity::Kind kind) {
  using Kind = CpuAffinity::Kind;
  return kind == Kind::kNode || kind == Kind::kSocket || kind == Kind::kExclusive || kind == Kind::kCoreComplex;
}

std::vector<std::vector<int>> numa_places(const std::vector<Cpu>& cpus, int nprocs, CpuAffinity::Kind kind) {
  const std::map<int, std::vector<Cpu>> nodes = nodes_of(cpus);
  const auto count = static_cast<std::size_t>(nprocs);
  std::vector<std::vector<int>> places;
  const auto node_of = [&](std::size_t rank) { return rank * nodes.size() / count; };
  for (std::size_t rank = 0; rank < count; ++rank) {
    Neighbours ranks{rank, 0};
    while (ranks.first > 0 && node_of(ranks.first - 1) == node_of(rank)) --ranks.first;
    while (ranks.first + ranks.count < count && node_of(ranks.first + ranks.count) == node_of(rank)) ++ranks.count;
    const auto& node = std::next(nodes.begin(), static_cast<std::ptrdiff_t>(node_of(rank)))->second;
    places.push_back(place_of(cpus, node, rank, ranks, kind));
    std::sort(places.back().begin(), places.back().end());
  }
  return places;
}

}  // namespace retinue
