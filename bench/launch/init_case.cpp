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
#include "torch_contenders.h"

/// Ranks become a group, from the last one's call until all have it: those that know an address, and those of a job,
/// which they share memory with from their start.
namespace retinue::bench {
namespace {

struct InitRound : Round {
  std::string method = {};  ///< Empty: the group of the job's ranks.

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(method);
  }
};

void join(RankContext& context, const InitRound& round) {
  std::unique_ptr<Communicator> group;
  const auto join_once = [&] {
    const JobGroup members =
        round.method.empty()
            ? context.world()
            : join_world({.init_method = round.method, .world_size = context.world_size(), .rank = context.rank()});
    group = std::make_unique<Communicator>(members, CommunicatorOptions{}, CallSite());
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

/// Of ranks that have made no group before.
InitRound first_group(std::string method) {
  InitRound round;
  round.iterations = 1;
  round.method = std::move(method);
  return round;
}

std::vector<double> join_times(int ranks) {
  const InitRound round = first_group(fmt::format("tcp://127.0.0.1:{}", free_port()));
  return collective_times(measure_round<join>(ranks, round));
}

std::vector<double> times_in_job(int ranks) {
  return collective_times(measure_round<join>(ranks, first_group("")));
}

std::vector<double> c10d_times_in_job(int ranks) {
  return collective_times(c10d_init_spans(ranks, first_group("")));
}

}  // namespace

std::vector<Row> run_init(const Settings& settings) {
  setenv("RETINUE_TOKEN", "of retinue-bench", 0);  // Rather than to make the user's.
  const int ranks = settings.ranks;
  std::vector<Contender> contenders = {{"tcp", [ranks] { return join_times(ranks); }},
                                       {"job", [ranks] { return times_in_job(ranks); }},
                                       {"job, c10d", [ranks] { return c10d_times_in_job(ranks); }}};
  const std::size_t own = contenders.size();
  if (settings.peers) {
    const auto peer = std::make_shared<Peer>("torch_init.py", ranks);
    contenders.push_back(
        {"torch gloo", [peer] { return collective_times(spans_of(peer->ask(fmt::format("init {}", free_port())))); }});
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<std::pair<std::string, Figures>> peers;
  for (std::size_t i = own; i < contenders.size(); ++i) peers.emplace_back(contenders[i].name, figures[i]);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < own; ++i)
    for (Row& row : rows_of({.case_name = "init", .variant = contenders[i].name, .ranks = ranks}, figures[i], peers))
      rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
