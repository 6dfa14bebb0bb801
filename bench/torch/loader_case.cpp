#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "peer.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

using Way = LoaderRound::Way;

/// Passes over the data set are measured; figures are of an item.
Samples per_item(std::vector<double> us, const std::vector<Usage>& usage, const LoaderRound& round) {
  for (double& time : us) time /= LoaderRound::kItems;
  return with_usage(std::move(us), usage, round.iterations * LoaderRound::kItems);
}

Contender own_epochs(Way way, int workers) {
  LoaderRound round;
  round.warmups = 1;
  round.iterations = 5;
  round.way = way;
  round.workers = workers;
  return {"", [=] {
            std::vector<Usage> usage;
            std::vector<double> times = whole_times(loader_spans(round, &usage));
            return per_item(std::move(times), usage, round);
          }};
}

Contender python_epochs(const std::shared_ptr<Peer>& peer, int workers) {
  LoaderRound round;
  round.iterations = 2;
  return {"", [=] {
            const std::vector<nlohmann::json> answers =
                peer->ask(fmt::format("epoch {} 1 {}", workers, round.iterations));
            return per_item(whole_times(spans_of(answers)), usage_of(answers), round);
          }};
}

}  // namespace

std::vector<Row> run_loader(const Settings& settings) {
  const auto python = std::make_shared<Peer>("torch_loader.py", 1);
  std::vector<Row> rows;
  for (const int workers : {0, 2}) {
    std::vector<Contender> contenders = {own_epochs(Way::kThreads, workers), own_epochs(Way::kProcesses, workers),
                                         own_epochs(Way::kLibTorch, workers)};
    if (settings.peers) contenders.push_back(python_epochs(python, workers));
    const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
    std::vector<std::pair<std::string, Figures>> peers = {{"LibTorch DataLoader", figures[2]}};
    if (settings.peers) peers.emplace_back("torch DataLoader (Python)", figures[3]);
    for (const auto& [what, ours] : {std::pair{"threads", figures[0]}, std::pair{"processes", figures[1]}}) {
      const Row head = {.case_name = "loader",
                        .variant = fmt::format("crops and flips, {} {}", workers, what),
                        .ranks = 1,
                        .bytes = LoaderRound::kItemBytes};
      for (Row& row : rows_of(head, ours, peers)) rows.push_back(std::move(row));
      if (workers == 0) break;  // There is no worker of any kind.
    }
  }
  return rows;
}

}  // namespace retinue::bench
