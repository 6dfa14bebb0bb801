#include "ps_command.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>

#include "ps_text.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

/// The terminal's width; 0 where output goes elsewhere.
std::size_t terminal_columns() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace

int ps_command(const PsOptions& options) {
  if (options.all && geteuid() != 0)
    throw UsageError("retinue ps --all: only root can see other users' jobs; run this command as root (sudo)");
  std::vector<ListedJob> jobs;
  bool is_complete = true;
  for (FoundJob& job : find_jobs(options.all ? WhoseJobs::kAll : WhoseJobs::kOwn)) {
    if (!job.memory) {
      write_standard_error(
          fmt::format("retinue ps: job {} of user {} cannot be inspected: {}\n", job.id, job.user, job.problem));
      is_complete = false;
    }
    std::vector<RankView> ranks = job.memory ? view_ranks(*job.memory) : std::vector<RankView>();
    jobs.push_back({std::move(job), std::move(ranks)});
  }
  const std::string text = options.json ? ps_json(jobs) : ps_text(jobs, terminal_columns());
  std::fputs(text.empty() && jobs.empty() ? "no jobs\n" : text.c_str(), stdout);
  return is_complete ? 0 : 1;
}

}  // namespace retinue
