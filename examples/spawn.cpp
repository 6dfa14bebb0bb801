// What spawn gives: values, failures, ranks that are looked after while they run, closures, places.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "retinue/launch/spawn.h"

// [values]
/// This rank's share of a series that sums up to pi.
double part_of_pi(retinue::RankContext& context, std::int64_t terms) {
  double sum = 0;
  for (std::int64_t k = context.rank(); k < terms; k += context.world_size())
    sum += (k % 2 == 0 ? 4.0 : -4.0) / static_cast<double>(2 * k + 1);
  return sum;
}

void compute_pi() {
  retinue::ProcessContext ranks = retinue::spawn<part_of_pi>({.nprocs = 4, .join = false}, 1'000'000);
  const retinue::RunResult result = ranks.wait();
  double pi = 0;
  for (const auto& [rank, part] : result.values<double>()) pi += part;
  fmt::print("pi is about {:.4f}\n", pi);
}
// [/values]

// [failure]
void read_shard(int rank, const std::string& folder) {
  const std::filesystem::path shard = std::filesystem::path(folder) / fmt::format("shard-{}", rank);
  if (!std::filesystem::exists(shard)) throw std::runtime_error(shard.string() + " is missing");
}

void read_shards(const std::string& folder) {
  try {
    retinue::spawn<read_shard>({.nprocs = 2}, folder);
  } catch (const retinue::ProcessException& failure) {  // what() has the stack and all other ranks, too.
    fmt::print("rank {} failed: {}: {}\n", failure.rank(), failure.outcome().type, failure.outcome().message);
  }
}
// [/failure]

// [running]
void serve(retinue::RankContext&) {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void serve_for_a_while() {
  using namespace std::chrono_literals;
  retinue::ProcessContext servers = retinue::spawn<serve>({.nprocs = 2, .join = false, .stop = {.terminate_wait = 5s}});
  if (!servers.join(100ms)) {  // false: some still run; it throws when one has failed
    for (const retinue::RankOutcome& rank : servers.status())
      if (rank.end == retinue::RankEnd::kRunning) fmt::print("rank {} is running\n", rank.rank);
    servers.terminate();  // SIGTERM to all, and SIGKILL to those that are there after 5 s
    servers.join();       // no failure: they were told to end
  }
  for (const retinue::RankOutcome& rank : servers.status())
    if (rank.end == retinue::RankEnd::kStopped) fmt::print("rank {} was stopped\n", rank.rank);
}
// [/running]

// [closure]
void search(const std::vector<int>& numbers, int wanted) {
  retinue::ProcessContext ranks = retinue::spawn({.nprocs = 2, .join = false}, [&](retinue::RankContext& context) {
    // Forks of the caller: `numbers` is seen where it lies, without a copy.
    std::vector<std::size_t> places;
    for (std::size_t i = context.rank(); i < numbers.size(); i += context.world_size())
      if (numbers[i] == wanted) places.push_back(i);
    return places;
  });
  for (const auto& [rank, places] : ranks.wait().values<std::vector<std::size_t>>())
    for (const std::size_t place : places) fmt::print("rank {} found {} at {}\n", rank, wanted, place);
}
// [/closure]

// [rows]
/// The sum of this rank's part of a row that all ranks read at the same place.
double part_of_sum(retinue::RankContext& context, std::span<const double> row) {
  const std::size_t part = row.size() / context.world_size();
  const auto own = row.subspan(context.rank() * part, part);
  return std::accumulate(own.begin(), own.end(), 0.0);
}

void sum_up(const std::vector<double>& row) {
  retinue::ProcessContext ranks = retinue::spawn<part_of_sum>({.nprocs = 2, .join = false}, row);
  double sum = 0;
  for (const auto& [rank, part] : ranks.wait().values<double>()) sum += part;
  fmt::print("the sum is {}\n", sum);
}
// [/rows]

// [global]
std::string greeting = "set before main";

void greet(int) {
  fmt::print("{}\n", greeting);
}

void greet_from_each() {
  greeting = "set by main";
  retinue::spawn<greet>({.start_method = retinue::StartMethod::kForkserver});  // prints: set before main
  retinue::spawn<greet>({.start_method = retinue::StartMethod::kSpawn});       // prints: set before main
  retinue::spawn<greet>({.start_method = retinue::StartMethod::kFork});        // prints: set by main
}
// [/global]

// [place]
void say_place(retinue::RankContext& context) {
  const char* role = std::getenv("ROLE");
  fmt::print("rank {}: {}, {}, {} thread(s)\n", context.rank(), role != nullptr ? role : "no role",
             std::filesystem::current_path().string(), context.cpus_per_rank());
}

void place() {
  retinue::spawn<say_place>({.nprocs = 2,
                             .environment = {{0, {{"ROLE", "writer"}}}},  // rank 1 gets nothing more
                             .directory = "/",
                             .threads_per_rank = 1,
                             .cpu_affinity = retinue::CpuAffinity::spread()});
}
// [/place]

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  compute_pi();
  read_shards(argc > 1 ? argv[1] : ".");
  serve_for_a_while();
  search({2, 3, 5, 7, 11}, 7);
  sum_up(std::vector<double>(1'000'000, 0.5));
  greet_from_each();
  place();
}
