#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peer.h"
#include "retinue/launch/spawn.h"
#include "samples.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr int kSpawnsPerRound = 5;

struct Method {
  const char* name;
  StartMethod method;
};
constexpr Method kMethods[] = {
    {"forkserver", StartMethod::kForkserver},
    {"spawn", StartMethod::kSpawn},
    {"fork", StartMethod::kFork},
};

Contender own_starts(int ranks, const Method& method) {
  return {method.name, [ranks, start = method.method] {
            std::vector<double> times;
            for (int i = 0; i < kSpawnsPerRound; ++i) times.push_back(torch_spawn_us(ranks, start));
            return times;
          }};
}

Contender peer_starts(const std::shared_ptr<Peer>& peer, int ranks, const Method& method) {
  return {std::string("torch.multiprocessing.") + method.name, [=] {
            const nlohmann::json answer = peer->ask(fmt::format("{} {}", method.name, ranks)).front();
            return std::vector<double>{answer.at("us").get<double>()};
          }};
}

void do_nothing(RankContext&) {}

Contender empty_starts(int ranks) {
  return {"empty", [ranks] {
            std::vector<double> times;
            for (int i = 0; i < kSpawnsPerRound; ++i) {
              const std::int64_t start = now_ns();
              spawn<do_nothing>({.nprocs = ranks});
              times.push_back(static_cast<double>(now_ns() - start) / 1000);
            }
            return times;
          }};
}

/// What any start by fork costs at least: this very image, forked by itself.
Contender bare_forks(int ranks) {
  return {"fork, exit, wait", [ranks] {
            std::vector<double> times;
            for (int i = 0; i < kSpawnsPerRound; ++i) {
              const std::int64_t start = now_ns();
              std::vector<pid_t> pids;
              for (int rank = 0; rank < ranks; ++rank) {
                const pid_t pid = fork();
                if (pid == 0) _exit(0);
                pids.push_back(pid);
              }
              for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
              times.push_back(static_cast<double>(now_ns() - start) / 1000);
            }
            return times;
          }};
}

Contender empty_peer(const std::shared_ptr<Peer>& peer, int ranks) {
  return {"torch.multiprocessing.spawn", [=] {
            const nlohmann::json answer = peer->ask(fmt::format("empty {}", ranks)).front();
            return std::vector<double>{answer.at("us").get<double>()};
          }};
}

std::vector<Row> run_empty_starts(const Settings& settings, const std::shared_ptr<Peer>& peer) {
  std::vector<Contender> contenders = {empty_starts(settings.ranks), bare_forks(settings.ranks)};
  if (settings.peers) contenders.push_back(empty_peer(peer, settings.ranks));
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<std::pair<std::string, Figures>> peers;
  for (std::size_t i = 1; i < contenders.size(); ++i) peers.emplace_back(contenders[i].name, figures[i]);
  return rows_of({.case_name = "spawn", .variant = "empty", .ranks = settings.ranks}, figures[0], peers);
}

}  // namespace

std::vector<Row> run_spawn(const Settings& settings) {
  std::vector<Contender> contenders;
  for (const Method& method : kMethods) contenders.push_back(own_starts(settings.ranks, method));
  const std::size_t variants = contenders.size();
  const auto peer = std::make_shared<Peer>("torch_spawn.py", 1);
  if (settings.peers) {
    for (const Method& method : kMethods) contenders.push_back(peer_starts(peer, settings.ranks, method));
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < variants; ++i) {
    // Each method stands beside torch's usual one, mp.spawn, and beside torch's of the same kind.
    std::vector<std::pair<std::string, Figures>> peers;
    for (std::size_t p = variants; p < contenders.size(); ++p) {
      const bool usual = contenders[p].name == "torch.multiprocessing.spawn";
      if (usual || p == variants + i) peers.emplace_back(contenders[p].name, figures[p]);
    }
    const Row head = {.case_name = "spawn", .variant = contenders[i].name, .ranks = settings.ranks};
    for (Row& row : rows_of(head, figures[i], peers)) rows.push_back(std::move(row));
  }
  for (Row& row : run_empty_starts(settings, peer)) rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
