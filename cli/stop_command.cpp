#include "stop_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "jobs.h"

namespace retinue {
namespace {

constexpr auto kBeyondPolicy = std::chrono::seconds(10);
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

std::chrono::milliseconds patience_of(const StopOptions& options, const FoundJob& job) {
  if (!options.timeout_seconds) return std::min(longest_stop_of(*job.memory) + kBeyondPolicy, kLongestTimeout);
  const double milliseconds = std::min(*options.timeout_seconds * 1e3, static_cast<double>(kLongestTimeout.count()));
  return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
}

void report_rest(const FoundJob& job, std::chrono::milliseconds patience) {
  fmt::print(stderr, "retinue stop: after {:.1f} s job {} still has ranks:\n",
             std::chrono::duration<double>(patience).count(), job.name());
  for (const RankView& rank : view_ranks(*job.memory)) {
    if (!rank.is_alive()) continue;
    const char* reason = rank.process_state == 'D' ? ", in uninterruptible sleep in the kernel (state D)" : "";
    fmt::print(stderr, "  rank {} of context {} (pid {}): {}{}\n", rank.rank, rank.context, rank.pid, rank.state,
               reason);
  }
  fmt::print(stderr, "  the guardian continues to stop them; kill -KILL {} ends the whole job at once\n", job.guardian);
}

}  // namespace

int stop_command(const StopOptions& options) {
  FoundJob job = choose_job(options.job);
  const std::chrono::milliseconds patience = patience_of(options, job);
  if (stop_job(job, patience)) return 0;
  report_rest(job, patience);
  return 1;
}

}  // namespace retinue
