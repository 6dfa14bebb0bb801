#include <algorithm>

#include "bench.h"
#include "collective/mpi_peers.h"
#include "peer.h"
#include "retinue/collective/communicator.h"
#include "samples.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr const char* kSlowCommand = "barrier 0 20 200";  // Where a call takes many times as long as ours.

/// A barrier has no result but this: nobody leaves it before everybody has entered it.
void check_barriers(const Spans& spans) {
  for (std::size_t i = 0; i < spans.front().size(); ++i) {
    std::int64_t last_enter = 0;
    for (const std::vector<Span>& of_rank : spans) last_enter = std::max(last_enter, of_rank[i].enter);
    for (const std::vector<Span>& of_rank : spans) {
      if (of_rank[i].exit < last_enter) throw std::runtime_error("barrier: a rank left before the last one had come");
    }
  }
}

void core_barrier(RankContext& context, const Round& round) {
  Communicator group(context.world());
  const auto nothing = [](int) {};
  measure_iterations(
      round, context, nothing, [&] { group.barrier(); }, nothing);
}

Contender checked(std::string name, std::function<Spans()> measure) {
  return {std::move(name), [measure = std::move(measure)] {
            const Spans spans = measure();
            check_barriers(spans);
            return collective_times(spans);
          }};
}

}  // namespace

std::vector<Row> run_barrier(const Settings& settings) {
  const Round round = {.warmups = 500, .iterations = 5000};
  const int ranks = settings.ranks;
  std::vector<Contender> contenders;
  contenders.push_back(checked("core", [=] { return measure_round<core_barrier>(ranks, round); }));
  contenders.push_back(checked("c10d", [=] { return c10d_barrier_spans(ranks, round); }));
  if (settings.peers) {
    const auto gloo = std::make_shared<Peer>("torch_gloo.py", ranks);
    contenders.push_back(checked("gloo", [=] { return spans_of(gloo->ask(kSlowCommand)); }));
    const char* const command = ranks > usable_cpus() ? kSlowCommand : "barrier 0 500 5000";
    for (const auto& [name, peer] : mpi_peers("barrier", ranks))
      contenders.push_back(checked(name, [=, peer = peer] { return spans_of_ranks(*peer, command); }));
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::pair<std::string, Figures>> peers;
    for (std::size_t peer = 2; peer < contenders.size(); ++peer)
      peers.emplace_back(contenders[peer].name, figures[peer]);
    const Row head = {.case_name = "barrier", .variant = contenders[i].name, .ranks = ranks};
    for (Row& row : rows_of(head, figures[i], peers)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace retinue::bench
