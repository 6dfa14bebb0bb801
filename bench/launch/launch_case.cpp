#include <fmt/format.h>

#include "bench.h"
#include "samples.h"
#include "started.h"

/// Starting programs: `retinue run -n R /bin/true` beside two bare processes, mpirun and torchrun.
namespace retinue::bench {
namespace {

constexpr int kStartsPerRound = 5;
constexpr const char* kProgram = "/bin/true";

double timed_us(const std::vector<std::string>& arguments) {
  const std::int64_t start = now_ns();
  wait_for_success(start_program(arguments), arguments[0]);
  return static_cast<double>(now_ns() - start) / 1000;
}

double bare_us(int ranks) {
  const std::int64_t start = now_ns();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) pids.push_back(start_program({kProgram}));
  for (const pid_t pid : pids) wait_for_success(pid, kProgram);
  return static_cast<double>(now_ns() - start) / 1000;
}

Contender repeated(std::string name, int times, std::function<double()> once) {
  return {std::move(name), [times, once = std::move(once)] {
            std::vector<double> samples;
            for (int i = 0; i < times; ++i) samples.push_back(once());
            return samples;
          }};
}

double mpirun_us(int ranks) {
  return timed_us({mpirun_command(), "--allow-run-as-root", "--oversubscribe", "-n", std::to_string(ranks), kProgram});
}

}  // namespace

std::vector<Row> run_launch(const Settings& settings) {
  const int ranks = settings.ranks;
  const std::string count = std::to_string(ranks);
  std::vector<Contender> contenders = {
      repeated("run", kStartsPerRound,
               [count] {
                 return timed_us({retinue_command(), "run", "-n", count, kProgram});
               }),
      repeated("posix_spawn and wait", kStartsPerRound, [ranks] { return bare_us(ranks); }),
  };
  if (settings.peers) {
    contenders.push_back(repeated("mpirun", 1, [ranks] { return mpirun_us(ranks); }));
    contenders.push_back(repeated("torchrun", 1, [count] {
      return timed_us(
          {torch_python(), "-m", "torch.distributed.run", "--nproc-per-node", count, "--no-python", kProgram});
    }));
  }
  const std::vector<Figures> figures = run_interleaved(contenders, settings.rounds);
  std::vector<std::pair<std::string, Figures>> peers;
  for (std::size_t i = 1; i < contenders.size(); ++i) peers.emplace_back(contenders[i].name, figures[i]);
  const Row head = {.case_name = "launch", .variant = contenders[0].name, .ranks = ranks};
  return rows_of(head, figures[0], peers);
}

}  // namespace retinue::bench
