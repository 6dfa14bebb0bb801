#include "top_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "job_sampler.h"
#include "jobs.h"
#include "os/process/process_calls.h"
#include "retinue/base/error.h"
#include "screen.h"
#include "top_text.h"

namespace retinue {
namespace {

constexpr double kLongestInterval = 3600;
constexpr double kShortest = 0.1;

void print(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) fmt::print("{}\n", line);
  std::fflush(stdout);
}

int show_once(const FoundJob& job, JobSampler& sampler, const TopOptions& options) {
  const JobSample sample = sampler.next();
  if (options.json)
    std::fputs(top_json(job, sample).c_str(), stdout);
  else
    print(top_lines(job, sample, {}));
  return 0;
}

}  // namespace

int top_command(const TopOptions& options) {
  const FoundJob job = choose_job(options.job);
  const auto interval = std::chrono::milliseconds(
      static_cast<int>(std::clamp(options.interval_seconds, kShortest, kLongestInterval) * 1e3));
  const FileDescriptor guardian = open_pidfd(job.guardian);
  JobSampler sampler(job.memory);
  JobSample sample = sampler.next();
  const bool is_once = options.once || options.json;
  std::optional<Screen> screen(std::in_place, is_once ? Screen::Use::kToWait : Screen::Use::kToDraw);
  Wake wake = Wake::kResized;
  while (wake != Wake::kLeave && wake != Wake::kGone) {
    if (screen->is_terminal()) screen->draw(top_lines(job, sample, screen->size()));
    wake = screen->wait(interval, guardian.get());
    if (wake != Wake::kTime) continue;
    if (is_once) return show_once(job, sampler, options);
    sample = sampler.next();
    if (!screen->is_terminal()) print(top_lines(job, sample, {}));
  }
  screen.reset();
  if (wake == Wake::kGone && is_once)
    throw Error(fmt::format("job {} ended before the measurement was complete", job.name()));
  if (wake == Wake::kGone) fmt::print("job {} has ended\n", job.name());
  return 0;
}

}  // namespace retinue
