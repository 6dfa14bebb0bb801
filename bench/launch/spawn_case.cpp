#include <fmt/format.h>

#include "peer.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr int kStartsPerRound = 5;

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
            for (int i = 0; i < kStartsPerRound; ++i) times.push_back(torch_spawn_us(ranks, start));
            return times;
          }};
}

Contender peer_starts(const std::shared_ptr<Peer>& peer, int ranks, const Method& method) {
  return {std::string("torch.multiprocessing.") + method.name, [=] {
            const nlohmann::json answer = peer->ask(fmt::format("{} {}", method.name, ranks)).front();
            return std::vector<double>{answer.at("us").get<double>()};
          }};
}

}  // namespace

std::vector<Row> run_spawn(const Settings& settings) {
  std::vector<Contender> contenders;
  for (const Method& method : kMethods) contenders.push_back(own_starts(settings.ranks, method));
  const std::size_t variants = contenders.size();
  if (settings.peers) {
    const auto peer = std::make_shared<Peer>("torch_spawn.py", 1);
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
  return rows;
}

}  // namespace retinue::bench
