#include <unistd.h>

#include <csignal>

#include "bench.h"
#include "retinue/launch/spawn.h"
#include "samples.h"
#include "started.h"

/// From a rank's death to the return of join(), which throws it.
namespace retinue::bench {
namespace {

constexpr int kFailuresPerRound = 5;

struct Death {
  std::uint64_t time_offset = 0;  ///< Of the nanosecond of the death.
  int how = 0;                    ///< 0: an exception; else the signal.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(time_offset, how);
  }
};

void fail(RankContext& context, const Death& death) {
  if (context.rank() != 0) {
    for (;;) pause();
  }
  *context.memory()->at<std::int64_t>(death.time_offset) = now_ns();
  if (death.how != 0) raise(death.how);
  throw std::runtime_error("a failure for retinue-bench");
}

double wake_us(int ranks, int how) {
  JobMemory& memory = *Runtime::current().memory();
  const BlockHandle block = memory.allocate(sizeof(std::int64_t));
  auto* died = memory.at<std::int64_t>(block.offset);
  *died = 0;
  std::int64_t woke = 0;
  try {
    spawn<fail>({.nprocs = ranks}, Death{block.offset, how});
  } catch (const ProcessException&) {
    woke = now_ns();
  }
  const std::int64_t death = *died;
  memory.release(block);
  if (death == 0 || woke == 0) throw std::logic_error("failure: the rank did not fail");
  return static_cast<double>(woke - death) / 1000;
}

}  // namespace

std::vector<Row> run_failure(const Settings& settings) {
  const std::pair<const char*, int> endings[] = {{"sigkill", SIGKILL}, {"exception", 0}};
  std::vector<Contender> contenders;
  for (const auto& [name, how] : endings)
    contenders.push_back({name, [ranks = settings.ranks, how = how] {
                            std::vector<double> samples;
                            for (int i = 0; i < kFailuresPerRound; ++i) samples.push_back(wake_us(ranks, how));
                            return samples;
                          }});
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < contenders.size(); ++i)
    for (Row& row :
         rows_of({.case_name = "failure", .variant = contenders[i].name, .ranks = settings.ranks}, figures[i], {}))
      rows.push_back(std::move(row));
  return rows;
}

}  // namespace retinue::bench
