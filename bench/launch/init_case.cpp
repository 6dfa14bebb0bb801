#include <fmt/format.h>

#include <cereal/types/string.hpp>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "bench.h"
#include "peer.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/join_world.h"
#include "retinue/store/tcp_store.h"
#include "samples.h"

/// Ranks that know an address become a group: from the last one's call until all have it.
namespace retinue::bench {
namespace {

struct InitRound : Round {
  std::string method = {};

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(method);
  }
};

void join(RankContext& context, const InitRound& round) {
  std::unique_ptr<Communicator> group;
  const auto join_once = [&] {
    group = std::make_unique<Communicator>(
        join_world({.init_method = round.method, .world_size = context.world_size(), .rank = context.rank()}));
  };
  const auto check = [&](int /*iteration*/) {
    int sum = 1;
    group->all_reduce(std::span(&sum, 1));
    if (sum != context.world_size()) throw std::logic_error("init: a rank is missing");
  };
  measure_iterations(
      round, context, [](int /*iteration*/) {}, join_once, check);
}

int free_port() {
  return TcpStore({.port = 0, .is_server = true}).port();
}

std::vector<double> join_times(int ranks) {
  InitRound round;
  round.iterations = 1;
  round.method = fmt::format("tcp://127.0.0.1:{}", free_port());
  return collective_times(measure_round<join>(ranks, round));
}

}  // namespace

std::vector<Row> run_init(const Settings& settings) {
  setenv("RETINUE_TOKEN", "of retinue-bench", 0);  // Rather than to make the user's.
  const int ranks = settings.ranks;
  std::vector<Contender> contenders = {{"tcp", [ranks] { return join_times(ranks); }}};
  if (settings.peers) {
    const auto peer = std::make_shared<Peer>("torch_init.py", ranks);
    contenders.push_back(
        {"torch gloo", [peer] { return collective_times(spans_of(peer->ask(fmt::format("init {}", free_port())))); }});
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<std::pair<std::string, Figures>> peers;
  for (std::size_t i = 1; i < contenders.size(); ++i) peers.emplace_back(contenders[i].name, figures[i]);
  return rows_of({.case_name = "init", .variant = contenders[0].name, .ranks = ranks}, figures[0], peers);
}

}  // namespace retinue::bench
