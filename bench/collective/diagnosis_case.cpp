#include "bench.h"
#include "retinue/collective/communicator.h"
#include "samples.h"

/// From the call that can't go well, or from the return of a rank's function, to the error on the last of the other
/// ranks. What a rank was late itself doesn't count.
namespace retinue::bench {
namespace {

constexpr int kCulprit = 1;
constexpr int kMismatchesPerRound = 50;
constexpr int kFinishesPerRound = 5;

/// What the others' barrier gets: an error, and when. Errors: std::logic_error when it got none.
template <class Expected>
Span time_of_error(Communicator& group, std::int64_t entered) {
  try {
    for (;;) group.barrier();
  } catch (const Expected&) {
    return {entered, now_ns()};
  }
}

/// A new group for each: the old one is of no use any more.
void mismatch(RankContext& context, const Round& round) {
  for (int i = 0; i < round.iterations; ++i) {
    Communicator group(context.world());
    group.barrier();
    std::int64_t data = 0;
    const std::int64_t entered = now_ns();
    if (context.rank() != kCulprit) {
      round.spans(context)[i] = time_of_error<CollectiveMismatch>(group, entered);
      continue;
    }
    try {
      group.all_reduce(std::span(&data, 1));
    } catch (const CollectiveMismatch&) {
      round.spans(context)[i] = {entered, now_ns()};
    }
  }
}

void finish_early(RankContext& context, const Round& round) {
  Communicator group(context.world());
  group.barrier();
  if (context.rank() == kCulprit) {
    const std::int64_t now = now_ns();
    round.spans(context)[0] = {now, now};
    return;
  }
  round.spans(context)[0] = time_of_error<PeerLost>(group, now_ns());
}

std::vector<double> finishes(int ranks) {
  std::vector<double> times;
  for (int i = 0; i < kFinishesPerRound; ++i)
    times.push_back(collective_times(measure_round<finish_early>(ranks, Round{.iterations = 1})).front());
  return times;
}

}  // namespace

std::vector<Row> run_diagnosis(const Settings& settings) {
  const int ranks = settings.ranks;
  if (ranks < 2) throw std::invalid_argument("diagnosis: there must be 2 ranks or more");
  std::vector<Contender> contenders;
  contenders.push_back({"mismatch", [=] {
                          const Round round{.iterations = kMismatchesPerRound};
                          return collective_times(measure_round<mismatch>(ranks, round));
                        }});
  contenders.push_back({"finished", [=] { return finishes(ranks); }});
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < contenders.size(); ++i)
    for (Row& row : rows_of({.case_name = "diagnosis", .variant = contenders[i].name, .ranks = ranks}, figures[i], {}))
      rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
