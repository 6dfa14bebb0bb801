// One job of mixed work, for random signals to its processes: `chaos_program WORK START_METHOD`, or `ranked` below a
// rank. Each piece of work checks its values, and prints a line that begins with WRONG where one is not what it must
// be.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/lock.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/shared_value.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"

namespace {

using namespace std::chrono_literals;
using retinue::RankContext;
using retinue::StartMethod;

constexpr int kRanks = 3;
constexpr auto kWorkTime = 400ms;
constexpr auto kPatience = 60s;  // Of all waits that another's death does not end.

bool goes_on() {
  static const auto end = std::chrono::steady_clock::now() + kWorkTime;
  return std::chrono::steady_clock::now() < end;
}

void must_be(std::uint64_t is, std::uint64_t wanted, const char* what) {
  if (is == wanted) return;
  std::printf("WRONG %s: %llu and not %llu\n", what, static_cast<unsigned long long>(is),
              static_cast<unsigned long long>(wanted));
  std::fflush(stdout);
}

/// The ranks agree in each step on whether there is another.
void sum_up(const RankContext& context) {
  retinue::Communicator group(context.world(), {.timeout = kPatience});
  const auto ranks = static_cast<std::uint64_t>(group.size());
  for (const std::size_t count : {std::size_t{1}, std::size_t{5000}, std::size_t{200'000}})
    for (std::uint64_t round = 0, more = 1; more != 0; ++round) {
      std::vector<std::uint64_t> values(count);
      std::iota(values.begin(), values.end(), round + static_cast<std::uint64_t>(group.rank()));
      group.all_reduce(std::span(values));
      for (std::size_t i = 0; i < count; ++i) must_be(values[i], ranks * (round + i) + ranks * (ranks - 1) / 2, "sum");
      more = goes_on() && round < 50 ? 1 : 0;
      group.all_reduce(std::span(&more, 1), retinue::ReduceOp::kMin);
    }
}

void sums(RankContext& context) {
  sum_up(context);
}

struct Pair {
  std::uint64_t number;
  std::uint64_t square;
  std::uint64_t more[30];
};

void pass_on(RankContext& context, const retinue::Queue<Pair>& pairs, const retinue::Queue<std::vector<int>>& rows) {
  auto numbers = pairs;
  auto texts = rows;
  for (std::uint64_t i = 0; goes_on(); ++i) {
    if (context.rank() == 0) {
      Pair pair{i, i * i, {}};
      for (auto& each : pair.more) each = i;
      numbers.put(pair, 10ms);
      texts.put(std::vector<int>(i % 5000, static_cast<int>(i)), 10ms);
      continue;
    }
    if (const auto pair = numbers.get(10ms)) {
      must_be(pair->square, pair->number * pair->number, "square");
      for (const auto each : pair->more) must_be(each, pair->number, "message");
    }
    if (const auto row = texts.get(10ms))
      for (const int each : *row) must_be(static_cast<std::uint64_t>(each) % 5000, row->size(), "row");
  }
}

/// Both are changed under the lock: who finds them different, and is not told that the last holder died, found a fault.
void count(RankContext&, const retinue::Lock& lock, const retinue::Value<std::uint64_t>& first,
           const retinue::Value<std::uint64_t>& second) {
  retinue::Lock own = lock;
  while (goes_on()) {
    if (!own.acquire(kPatience)) return must_be(0, 1, "lock in time");
    const std::uint64_t before = first.get();
    if (own.owner_died())
      second.set(before);
    else
      must_be(second.get(), before, "counter");
    first.set(before + 1);
    second.set(before + 1);
    own.release();
  }
}

std::uint64_t square(std::uint64_t number) {
  return number * number;
}

void use_pool() {
  retinue::Pool pool({.processes = kRanks, .retries = 5});
  std::vector<std::uint64_t> numbers(200);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  while (goes_on()) {
    const std::vector<std::uint64_t> squares = pool.map<square>(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) must_be(squares[i], i * i, "square of a pool");
  }
}

void start_others(RankContext& context) {
  while (goes_on()) {
    const int base = context.rank();
    const retinue::RunResult result =
        retinue::spawn<sums>({.nprocs = 2, .join = false, .stop = {.terminate_wait = 1s}}).wait();
    must_be(result.outcomes().size(), 2, base == 0 ? "outcomes" : "outcomes of another");
    if (!result.ok()) throw std::runtime_error("those below failed");
  }
}

StartMethod method_of(const std::string& name) {
  if (name == "spawn") return StartMethod::kSpawn;
  return name == "fork" ? StartMethod::kFork : StartMethod::kForkserver;
}

void work(const std::string& what, StartMethod method) {
  const retinue::SpawnOptions options{.nprocs = kRanks, .start_method = method, .stop = {.terminate_wait = 1s}};
  if (what == "sums") retinue::spawn<sums>(options);
  if (what == "queue")
    retinue::spawn<pass_on>(options, retinue::Queue<Pair>({.capacity = 16}),
                            retinue::Queue<std::vector<int>>({.capacity = 4}));
  if (what == "lock")
    retinue::spawn<count>(options, retinue::Lock::create(), retinue::Value<std::uint64_t>(0),
                          retinue::Value<std::uint64_t>(0));
  if (what == "pool") use_pool();
  if (what == "nested") retinue::spawn<start_others>(options);
}

}  // namespace

int main(int argc, char** argv) try {
  retinue::Runtime runtime(argc, argv);
  goes_on();
  if (argc > 1 && std::string(argv[1]) == "ranked") {
    sum_up(runtime.rank_context());
    return 0;
  }
  if (argc < 3) return 2;
  work(argv[1], method_of(argv[2]));
} catch (const retinue::TimeoutError& error) {
  std::printf("WRONG timeout: %s\n", error.what());
  return 1;
} catch (const std::exception&) {
  return 1;  // A rank was killed: that is what is done here.
}
