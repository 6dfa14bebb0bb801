#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>

#include "bench.h"
#include "retinue/launch/spawn.h"
#include "samples.h"

/// What a rank costs as there are more of them: time per rank from the call to the end, and memory of its own while all
/// run.
namespace retinue::bench {
namespace {

constexpr int kCounts[] = {1, 10, 100, 1000};

using Counter = std::atomic<int>;

void arrive_and_stay(RankContext& context, std::uint64_t offset) {
  context.memory()->at<Counter>(offset)->fetch_add(1);
  for (;;) pause();
}

/// Memory that would come back if only this process ended. Units: bytes.
std::size_t private_bytes(int pid) {
  std::ifstream rollup(fmt::format("/proc/{}/smaps_rollup", pid));
  std::size_t kibibytes = 0;
  std::string word;
  for (std::size_t value = 0; rollup >> word;)
    if ((word == "Private_Clean:" || word == "Private_Dirty:") && rollup >> value) kibibytes += value;
  return kibibytes << 10;
}

struct Cost {
  double us_per_rank = 0;
  std::size_t bytes_per_rank = 0;
};

Cost cost_of(int ranks) {
  JobMemory& memory = *Runtime::current().memory();
  const BlockHandle block = memory.allocate(sizeof(Counter));
  auto* arrived = new (memory.at<Counter>(block.offset)) Counter(0);
  const std::int64_t start = now_ns();
  ProcessContext context = spawn<arrive_and_stay>({.nprocs = ranks, .join = false}, block.offset);
  while (arrived->load() < ranks) usleep(200);
  const std::int64_t all_run = now_ns();
  const std::vector<int> pids = context.pids();
  const std::size_t bytes = private_bytes(pids[pids.size() / 2]);
  const std::int64_t looked = now_ns();
  context.terminate();
  context.join();
  const std::int64_t end = now_ns();
  memory.release(block);
  return {static_cast<double>(all_run - start + end - looked) / 1000 / ranks, bytes};
}

}  // namespace

std::vector<Row> run_scale(const Settings& settings) {
  std::vector<Row> rows;
  for (const int ranks : kCounts) {
    std::vector<double> times;
    std::size_t bytes = 0;
    for (int round = 0; round < std::min(settings.rounds, 3); ++round) {
      const Cost cost = cost_of(ranks);
      times.push_back(cost.us_per_rank);
      bytes = cost.bytes_per_rank;
    }
    rows.push_back({.case_name = "scale",
                    .variant = "per rank",
                    .ranks = ranks,
                    .bytes = bytes,
                    .ours_us = quantile(times, 0.5),
                    .p99_us = quantile(times, 0.99)});
  }
  return rows;
}

}  // namespace retinue::bench
