#include <cstdlib>

#include "bench.h"
#include "retinue/collective/communicator.h"
#include "samples.h"

/// What keeping calls in the flight recorder costs: barriers, many in a row, with it and without.
namespace retinue::bench {
namespace {

constexpr int kCallsPerSample = 2000;

template <bool kRecords>
void barriers(RankContext& context, const Round& round) {
  setenv("RETINUE_FLIGHT_RECORDER", kRecords ? "10000" : "0", 1);
  Communicator group(context.world());
  const auto nothing = [](int) {};
  measure_iterations(
      round, context, nothing,
      [&] {
        for (int i = 0; i < kCallsPerSample; ++i) group.barrier();
      },
      nothing);
}

template <bool kRecords>
Contender contender(const char* name, int ranks) {
  return {name, [ranks] {
            const Round round = {.warmups = 5, .iterations = 50};
            std::vector<double> times = mean_times(measure_round<barriers<kRecords>>(ranks, round));
            for (double& time : times) time /= kCallsPerSample;
            return times;
          }};
}

}  // namespace

std::vector<Row> run_recorder(const Settings& settings) {
  const std::vector<Contender> contenders = {contender<true>("with", settings.ranks),
                                             contender<false>("without", settings.ranks)};
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  return rows_of({.case_name = "recorder", .variant = "barrier", .ranks = settings.ranks}, figures[0],
                 {{contenders[1].name, figures[1]}});
}

}  // namespace retinue::bench
