#include "stacks_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "jobs.h"
#include "process/symbols/stack_reader.h"
#include "python_stacks.h"

namespace retinue {
namespace {

constexpr double kLongest = 3600;

}  // namespace

int stacks_command(const StacksOptions& options) {
  const FoundJob job = choose_job(options.job);
  const std::vector<RankView> ranks =
      choose_ranks(job, view_ranks(*job.memory), {.rank = options.rank, .context = options.context});
  std::vector<pid_t> pids;
  std::ranges::transform(ranks, std::back_inserter(pids), &RankView::pid);
  const auto patience = std::chrono::milliseconds(static_cast<int>(std::min(options.timeout_seconds, kLongest) * 1e3));
  read_stacks(pids, patience, [&](std::size_t index, const std::string& text) {
    const RankView& rank = ranks[index];
    fmt::print("rank {} of context {} (pid {}, {}): {}\n{}{}\n", rank.rank, rank.context, rank.pid, rank.state,
               rank.command, text, python_stacks(rank.pid, patience));
    std::fflush(stdout);
  });
  return 0;
}

}  // namespace retinue
