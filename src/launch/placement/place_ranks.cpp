#include "launch/placement/place_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "launch/placement/numa_places.h"
#include "os/machine/cgroups.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Part `index` of `count` things dealt out evenly to `parts`: first and one beyond the last.
std::pair<std::size_t, std::size_t> share(std::size_t count, std::size_t parts, std::size_t index) {
  return {count * index / parts, count * (index + 1) / parts};
}

/// Hardware threads core by core, in the order of sockets.
std::vector<std::vector<int>> cores_of(const std::vector<Cpu>& cpus) {
  std::map<std::pair<int, int>, std::vector<int>> cores;
  for (const Cpu& cpu : cpus) cores[{cpu.package, cpu.core}].push_back(cpu.number);
  std::vector<std::vector<int>> ordered;
  for (auto& [place, threads] : cores) {
    std::sort(threads.begin(), threads.end());
    ordered.push_back(std::move(threads));
  }
  return ordered;
}

/// The first hardware threads of all cores from `first` to before `last`, then the second ones, and so on.
std::vector<int> cores_first(const std::vector<std::vector<int>>& cores, std::size_t first, std::size_t last) {
  std::vector<int> cpus;
  for (std::size_t thread = 0;; ++thread) {
    const std::size_t before = cpus.size();
    for (std::size_t core = first; core < last; ++core)
      if (thread < cores[core].size()) cpus.push_back(cores[core][thread]);
    if (cpus.size() == before) return cpus;
  }
}

std::vector<int> spread_rank(const std::vector<std::vector<int>>& cores, std::size_t rank, std::size_t nprocs,
                             std::size_t threads) {
  if (nprocs > cores.size()) {  // Not a core for each: a hardware thread for each, as long as there are some.
    const std::vector<int> all = cores_first(cores, 0, cores.size());
    return {all[rank % all.size()]};
  }
  const auto [first, last] = share(cores.size(), nprocs, rank);
  std::vector<int> cpus = cores_first(cores, first, last);
  if (threads != 0 && threads < cpus.size()) cpus.resize(threads);
  return cpus;
}

std::vector<int> compact_rank(const std::vector<int>& ordered, std::size_t rank, std::size_t nprocs,
                              std::size_t threads) {
  auto [first, last] = share(ordered.size(), nprocs, rank);
  if (nprocs > ordered.size()) return {ordered[first]};
  if (threads != 0 && threads * nprocs <= ordered.size())
    std::tie(first, last) = std::pair(rank * threads, (rank + 1) * threads);
  return {ordered.begin() + static_cast<std::ptrdiff_t>(first), ordered.begin() + static_cast<std::ptrdiff_t>(last)};
}

std::vector<int> numbers_of(const std::vector<Cpu>& cpus) {
  std::vector<int> numbers;
  for (const Cpu& cpu : cpus) numbers.push_back(cpu.number);
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::vector<std::vector<int>> checked_lists(const std::vector<Cpu>& cpus, int nprocs,
                                            std::vector<std::vector<int>> lists) {
  if (lists.size() != static_cast<std::size_t>(nprocs))
    throw UsageError(
        fmt::format("CPU affinity: {} lists of CPUs for {} ranks: give one list for each rank", lists.size(), nprocs));
  const std::vector<int> allowed = numbers_of(cpus);
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    if (lists[rank].empty()) throw UsageError(fmt::format("CPU affinity: the list of rank {} is empty", rank));
    std::sort(lists[rank].begin(), lists[rank].end());
    lists[rank].erase(std::unique(lists[rank].begin(), lists[rank].end()), lists[rank].end());
    for (const int cpu : lists[rank])
      if (!std::binary_search(allowed.begin(), allowed.end(), cpu))
        throw UsageError(fmt::format("CPU affinity: rank {} is to run on CPU {}, but this process may only use CPUs {}",
                                     rank, cpu, cpu_list_text(allowed)));
  }
  return lists;
}

}  // namespace

std::vector<std::vector<int>> place_ranks(const std::vector<Cpu>& cpus, int nprocs, const CpuAffinity& affinity,
                                          int threads_per_rank) {
  const auto ranks = static_cast<std::size_t>(nprocs);
  if (affinity.kind() == CpuAffinity::Kind::kLists) return checked_lists(cpus, nprocs, affinity.lists());
  std::vector<std::vector<int>> places(ranks);
  if (affinity.kind() == CpuAffinity::Kind::kNone) return places;
  if (is_by_node(affinity.kind())) return numa_places(cpus, nprocs, affinity.kind());
  const std::vector<std::vector<int>> cores = cores_of(cpus);
  std::vector<int> ordered;
  for (const auto& core : cores) ordered.insert(ordered.end(), core.begin(), core.end());
  const auto threads = static_cast<std::size_t>(threads_per_rank);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    places[rank] = affinity.kind() == CpuAffinity::Kind::kSpread ? spread_rank(cores, rank, ranks, threads)
                                                                 : compact_rank(ordered, rank, ranks, threads);
    std::sort(places[rank].begin(), places[rank].end());
  }
  return places;
}

std::vector<int> thread_shares(const std::vector<std::vector<int>>& places, int cpus, CpuAffinity::Kind kind,
                               std::optional<double> cgroup_limit) {
  const int ranks = static_cast<int>(places.size());
  const int most = std::max(1, usable_cpus(cpus, cgroup_limit) / ranks);
  std::map<int, int> users;
  for (const auto& place : places)
    for (const int cpu : place) ++users[cpu];
  std::vector<int> shares;
  for (const auto& place : places) {
    if (kind == CpuAffinity::Kind::kLists) {
      shares.push_back(static_cast<int>(place.size()));
      continue;
    }
    double share = place.empty() ? most : 0;
    for (const int cpu : place) share += 1.0 / users[cpu];
    constexpr double kRounding = 1e-6;
    const int whole = std::max(1, static_cast<int>(share + kRounding));
    // Without a limit a rank may have more than the average: its cores are its own.
    shares.push_back(cgroup_limit ? std::min(whole, most) : whole);
  }
  return shares;
}

std::vector<RankPlace> places_among(const std::vector<int>& allowed, int nprocs, const CpuAffinity& affinity,
                                    int threads_per_rank) {
  const bool is_needed = affinity.kind() != CpuAffinity::Kind::kNone;
  std::vector<Cpu> topology = is_needed ? cpu_topology(allowed) : std::vector<Cpu>();
  if (is_by_node(affinity.kind())) read_nodes_and_caches(topology);
  const auto lists = place_ranks(topology, nprocs, affinity, threads_per_rank);
  const std::vector<int> threads =
      thread_shares(lists, static_cast<int>(allowed.size()), affinity.kind(), cgroup_cpus());
  std::vector<RankPlace> places;
  for (std::size_t rank = 0; rank < lists.size(); ++rank)
    places.push_back(
        {lists[rank].empty() ? allowed : lists[rank], threads_per_rank > 0 ? threads_per_rank : threads[rank]});
  return places;
}

std::vector<RankPlace> rank_places(const CpuAffinity& affinity, int nprocs, int threads_per_rank) {
  if (nprocs < 1) throw UsageError(fmt::format("rank_places: nprocs is {}: it must be at least 1", nprocs));
  return places_among(allowed_cpus(), nprocs, affinity, threads_per_rank);
}

}  // namespace retinue
