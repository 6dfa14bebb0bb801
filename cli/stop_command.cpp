#include "stop_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "jobs.h"
#include "retinue/os/detail/standard_error.h"

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
  std::string text = fmt::format("retinue stop: after {:.1f} s job {} still has ranks:\n",
                                 std::chrono::duration<double>(patience).count(), job.name());
  for (const RankView& rank : view_ranks(*job.memory)) {
    if (!rank.is_alive()) continue;
    const char* reason = rank.process_state == 'D' ? ", in uninterruptible sleep in the kernel (state D)" : "";
    text +=
        fmt::format("  rank {} of context {} (pid {}): {}{}\n", rank.rank, rank.context, rank.pid, rank.state, reason);
  }
  text +=
      fmt::format("  the guardian continues to stop them; kill -KILL {} ends the whole job at once\n", job.guardian);
  write_standard_error(text);
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
