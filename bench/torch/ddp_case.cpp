#include <fmt/format.h>

#include <iterator>

#include "peer.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr int kWarmups = 5;
constexpr int kSteps = 20;

Contender own_steps(int ranks, int mlp, DdpRound::Mode mode) {
  DdpRound round;
  round.warmups = kWarmups;
  round.iterations = kSteps;
  round.mlp = mlp;
  round.mode = mode;
  return {"", [=] { return mean_times(ddp_spans(ranks, round)); }};
}

Contender peer_steps(const std::shared_ptr<Peer>& peer, const Mlp& mlp, const char* mode) {
  const std::string command = fmt::format("{} {} {} {}", mode, mlp.name, kWarmups, kSteps);
  return {"", [=] { return mean_times(spans_of(peer->ask(command))); }};
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

std::vector<Row> run_mlp(const Settings& settings, int index, const std::shared_ptr<Peer>& gloo) {
  const Mlp& mlp = kMlps[index];
  std::vector<Contender> contenders = {
      own_steps(settings.ranks, index, DdpRound::Mode::kLocal),
      own_steps(settings.ranks, index, DdpRound::Mode::kDdp),
  };
  if (settings.peers) {
    contenders.push_back(peer_steps(gloo, mlp, "local"));
    contenders.push_back(peer_steps(gloo, mlp, "ddp"));
  }
  std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  // Places 0-2 are ours, 3-5 the peer's: local step, DDP step, their difference.
  figures.insert(figures.begin() + 2, overhead_of(figures[0], figures[1]));
  if (settings.peers) figures.push_back(overhead_of(figures[3], figures[4]));

  std::vector<Row> rows;
  const char* const variants[] = {"step-local", "step-ddp", "overhead-reducer"};
  for (std::size_t i = 0; i < std::size(variants); ++i) {
    std::vector<std::pair<std::string, Figures>> peers;
    if (settings.peers) peers.emplace_back("torch DDP over gloo", figures[3 + i]);
    const Row head = {
        .case_name = "ddp", .variant = variants[i], .ranks = settings.ranks, .bytes = mlp.parameter_bytes()};
    for (Row& row : rows_of(head, figures[i], peers)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::size_t Mlp::parameter_bytes() const {
  std::size_t parameters = 0;
  for (std::size_t i = 0; i + 1 < widths.size(); ++i)
    parameters += (static_cast<std::size_t>(widths[i]) + 1) * static_cast<std::size_t>(widths[i + 1]);
  return parameters * sizeof(float);
}

std::vector<Row> run_ddp(const Settings& settings) {
  const auto gloo = std::make_shared<Peer>("torch_gloo.py", settings.ranks);
  std::vector<Row> rows;
  for (int index = 0; index < static_cast<int>(std::size(kMlps)); ++index) {
    for (Row& row : run_mlp(settings, index, gloo)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace retinue::bench
