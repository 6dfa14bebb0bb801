#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "bench.h"
#include "collective/mpi_peers.h"
#include "peer.h"
#include "retinue/collective/communicator.h"
#include "samples.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

std::string command_of(int iterations) {
  return fmt::format("barrier 0 {} {}", iterations / 10, iterations);
}
/// Where a call takes many times as long as ours.
int slow_iterations(const Settings& settings) {
  if (settings.calls != 0) return settings.calls;
  return settings.beside_busy ? 2000 : 200;
}
int own_iterations(const Settings& settings) {
  if (settings.calls != 0) return settings.calls;
  return settings.beside_busy ? 200'000 : 5000;
}

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

/// And where in job memory each rank leaves how often its thread left its CPU for another, or slept.
struct BarrierRound : Round {
  std::uint64_t switches_offset = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(switches_offset);
  }
};

long context_switches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw + usage.ru_nivcsw;
}

void core_barrier(RankContext& context, const BarrierRound& round) {
  Communicator group(context.world());
  const auto nothing = [](int) {};
  const long before = context_switches();
  measure_iterations(
      round, context, nothing, [&] { group.barrier(); }, nothing);
  context.memory()->at<double>(round.switches_offset)[context.rank()] =
      static_cast<double>(context_switches() - before) / (round.warmups + round.iterations);
}

/// Adds to `switches` what each rank had.
Spans measure_core(int ranks, BarrierRound round, std::vector<double>& switches) {
  JobMemory& memory = *Runtime::current().memory();
  const BlockHandle block = memory.allocate(sizeof(double) * static_cast<std::size_t>(ranks));
  round.switches_offset = block.offset;
  Spans spans = measure_round<core_barrier>(ranks, round);
  const double* const of_ranks = memory.at<double>(block.offset);
  switches.insert(switches.end(), of_ranks, of_ranks + ranks);
  memory.release(block);
  return spans;
}

Contender checked(std::string name, const Settings& settings, std::function<Spans()> measure) {
  const TimesOf times = settings.beside_busy ? &time_of_round : &collective_times;
  return {std::move(name), [measure = std::move(measure), times] {
            const Spans spans = measure();
            check_barriers(spans);
            return times(spans);
          }};
}

}  // namespace

std::vector<Row> run_barrier(const Settings& settings) {
  BarrierRound round;
  round.warmups = 500;
  round.iterations = own_iterations(settings);
  std::vector<double> switches;
  const int ranks = settings.ranks;
  std::vector<Contender> contenders;
  contenders.push_back(checked("core", settings, [&] { return measure_core(ranks, round, switches); }));
  contenders.push_back(checked("c10d", settings, [=] { return c10d_barrier_spans(ranks, round); }));
  if (settings.peers) {
    const auto gloo = std::make_shared<Peer>("torch_gloo.py", ranks);
    const std::string slow = command_of(slow_iterations(settings));
    contenders.push_back(checked("gloo", settings, [=] { return spans_of(gloo->ask(slow)); }));
    const std::string command = ranks > usable_cpus() ? slow : command_of(own_iterations(settings));
    for (const auto& [name, peer] : mpi_peers("barrier", ranks))
      contenders.push_back(checked(name, settings, [=, peer = peer] { return spans_of_ranks(*peer, command); }));
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::pair<std::string, Figures>> peers;
    for (std::size_t peer = 2; peer < contenders.size(); ++peer)
      peers.emplace_back(contenders[peer].name, figures[peer]);
    Row head = {.case_name = "barrier", .variant = contenders[i].name, .ranks = ranks};
    if (i == 0) head.switches = quantile(switches, 0.5);
    for (Row& row : rows_of(head, figures[i], peers)) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace retinue::bench
