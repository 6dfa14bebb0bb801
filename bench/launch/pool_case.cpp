#include "retinue/launch/pool.h"

#include <fmt/format.h>

#include <memory>
#include <numeric>

#include "bench.h"
#include "peer.h"
#include "samples.h"

/// Empty tasks in a pool that is there already.
namespace retinue::bench {
namespace {

struct Variant {
  const char* name;
  int tasks;
  int peer_tasks;  ///< Fewer where the peer would take long; its time is scaled up.
};
constexpr Variant kVariants[] = {
    {"map", 100'000, 100'000},    // Chunks as each pool chooses them.
    {"single", 100'000, 20'000},  // Chunks of one.
    {"apply", 2'000, 2'000},      // One after the other, each waited for.
};

void do_nothing_with(int) {}
int same(int number) {
  return number;
}

double run_us(Pool& pool, const Variant& variant, const std::vector<int>& items) {
  const std::string_view name = variant.name;
  const std::int64_t start = now_ns();
  if (name == "apply") {
    for (const int item : items) pool.apply<do_nothing_with>(item);
  } else {
    pool.map<do_nothing_with>(items, {.chunk_size = name == "single" ? std::size_t{1} : 0});
  }
  return static_cast<double>(now_ns() - start) / 1000;
}

Contender own_tasks(const std::shared_ptr<Pool>& pool, const Variant& variant) {
  return {variant.name, [pool, variant] {
            std::vector<int> items(static_cast<std::size_t>(variant.tasks));
            std::iota(items.begin(), items.end(), 0);
            return std::vector<double>{run_us(*pool, variant, items)};
          }};
}

Contender peer_tasks(const std::shared_ptr<Peer>& peer, int ranks, const Variant& variant) {
  return {"multiprocessing.Pool", [=] {
            const std::string command = fmt::format("{} {} {}", variant.name, ranks, variant.peer_tasks);
            const double us = peer->ask(command).front().at("us").get<double>();
            return std::vector<double>{us * variant.tasks / variant.peer_tasks};
          }};
}

void check(Pool& pool) {
  std::vector<int> items(10'000);
  std::iota(items.begin(), items.end(), 0);
  if (pool.map<same>(items) != items || pool.map<same>(items, {.chunk_size = 1}) != items)
    throw std::logic_error("pool: the results are wrong");
}

}  // namespace

std::vector<Row> run_pool(const Settings& settings) {
  const auto pool = std::make_shared<Pool>(PoolOptions{.processes = settings.ranks});
  check(*pool);
  const auto peer = std::make_shared<Peer>("python_pool.py", 1);
  std::vector<Row> rows;
  for (const Variant& variant : kVariants) {
    std::vector<Contender> contenders = {own_tasks(pool, variant)};
    if (settings.peers) contenders.push_back(peer_tasks(peer, settings.ranks, variant));
    const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
    std::vector<std::pair<std::string, Figures>> peers;
    if (settings.peers) peers.emplace_back(contenders[1].name, figures[1]);
    const Row head = {.case_name = "pool", .variant = variant.name, .ranks = settings.ranks};
    for (Row& row : rows_of(head, figures[0], peers)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace retinue::bench
