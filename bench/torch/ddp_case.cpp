#include <fmt/format.h>

#include <iterator>

#include "peer.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr int kWarmups = 5;
constexpr int kSteps = 20;

using Mode = TrainingRound::Mode;
using Algorithm = TrainingRound::Algorithm;

Contender own_steps(int ranks, int net, Mode mode, Algorithm algorithm = Algorithm::kSgd) {
  TrainingRound round;
  round.warmups = kWarmups;
  round.iterations = kSteps;
  round.net = net;
  round.mode = mode;
  round.algorithm = algorithm;
  return {"", [=] { return training_steps(ranks, round); }};
}

/// `mode`: local or ddp, and the optimizer, as in "ddp:adamw".
Contender peer_steps(const std::shared_ptr<Peer>& peer, const NetCase& net, const std::string& mode) {
  const std::string command = fmt::format("{} {} {} {}", mode, net.name, kWarmups, kSteps);
  return {"", [=] {
            const std::vector<nlohmann::json> answers = peer->ask(command);
            return with_usage(mean_times(spans_of(answers)), usage_of(answers), kSteps);
          }};
}

/// What communication adds: the difference of the medians of each round's two steps.
Figures overhead_of(const Figures& local, const Figures& ddp) {
  Figures overhead;
  overhead.skipped = ddp.skipped.empty() ? local.skipped : ddp.skipped;
  if (!overhead.skipped.empty()) return overhead;
  for (std::size_t i = 0; i < ddp.round_medians.size(); ++i)
    overhead.round_medians.push_back(ddp.round_medians[i] - local.round_medians[i]);
  overhead.median_us = quantile(overhead.round_medians, 0.5);
  overhead.p99_us = quantile(overhead.round_medians, 0.99);
  return overhead;
}

using Peers = std::vector<std::pair<std::string, Figures>>;

/// What averaging adds to a step, beside an averaging of as many bytes that nothing else surrounds, and what such an
/// averaging adds to a step: the ranks wait there for the one that was slower this time.
/// What a rank of torch needs is seen in processes that train one net one way.
std::vector<Row> run_net(const Settings& settings, int index) {
  const NetCase& net = kNets[index];
  std::vector<Contender> contenders = {
      own_steps(settings.ranks, index, Mode::kLocal),
      own_steps(settings.ranks, index, Mode::kDdp),
      bare_average(settings.ranks, net.bytes()),
      own_steps(settings.ranks, index, Mode::kLocalReduce),
  };
  if (settings.peers) {
    for (const char* const mode : {"local:sgd", "ddp:sgd"})
      contenders.push_back(peer_steps(std::make_shared<Peer>("torch_gloo.py", settings.ranks), net, mode));
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  const Figures &local = figures[0], &ddp = figures[1], &bare = figures[2];
  Peers local_peers, ddp_peers,
      overhead_peers{{"bare all_reduce", bare}, {"all_reduce after backward", overhead_of(local, figures[3])}};
  if (settings.peers) {
    local_peers.emplace_back("torch, unconnected", figures[4]);
    ddp_peers.emplace_back("torch DDP over gloo", figures[5]);
    overhead_peers.emplace_back("torch DDP over gloo", overhead_of(figures[4], figures[5]));
  }
  std::vector<Row> rows;
  const auto add = [&](const char* what, const Figures& ours, const Peers& peers) {
    const Row head = {.case_name = "ddp",
                      .variant = fmt::format("{} {}", net.name, what),
                      .ranks = settings.ranks,
                      .bytes = net.bytes()};
    for (Row& row : rows_of(head, ours, peers)) rows.push_back(std::move(row));
  };
  add("step-local", local, local_peers);
  add("step-ddp", ddp, ddp_peers);
  add("overhead", overhead_of(local, ddp), overhead_peers);
  return rows;
}

/// Whole steps: each way of ours beside unconnected training and DDP.
std::vector<Row> run_training(const Settings& settings, int index, Algorithm algorithm,
                              const std::shared_ptr<Peer>& gloo) {
  const NetCase& net = kNets[index];
  const char* const name = algorithm == Algorithm::kSgd ? "sgd" : "adamw";
  const Mode modes[] = {Mode::kLocal, Mode::kLocalFused, Mode::kDdp, Mode::kDdpFused, Mode::kSharded, Mode::kShared};
  std::vector<Contender> contenders;
  for (const Mode mode : modes) contenders.push_back(own_steps(settings.ranks, index, mode, algorithm));
  if (settings.peers) contenders.push_back(peer_steps(gloo, net, fmt::format("ddp:{}", name)));
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  Peers peers = {
      {"unconnected", figures[0]}, {"unconnected, fused", figures[1]}, {"DDP", figures[2]}, {"DDP, fused", figures[3]}};
  if (settings.peers) peers.emplace_back("torch DDP over gloo", figures[6]);
  std::vector<Row> rows;
  for (const auto& [what, ours] : {std::pair{"sharded", figures[4]}, std::pair{"shared", figures[5]}}) {
    const Row head = {.case_name = "train",
                      .variant = fmt::format("{} {} {}", net.name, name, what),
                      .ranks = settings.ranks,
                      .bytes = net.bytes()};
    for (Row& row : rows_of(head, ours, peers)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<Row> run_ddp(const Settings& settings) {
  std::vector<Row> rows;
  for (int index = 0; index < static_cast<int>(std::size(kNets)); ++index)
    for (Row& row : run_net(settings, index)) rows.push_back(std::move(row));
  return rows;
}

std::vector<Row> run_train(const Settings& settings) {
  const auto gloo = std::make_shared<Peer>("torch_gloo.py", settings.ranks);
  std::vector<Row> rows;
  for (int index = 0; index < static_cast<int>(std::size(kNets)); ++index)
    for (const Algorithm algorithm : {Algorithm::kSgd, Algorithm::kAdamW})
      for (Row& row : run_training(settings, index, algorithm, gloo)) rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
