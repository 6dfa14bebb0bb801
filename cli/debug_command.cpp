#include "debug_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "jobs.h"
#include "process/guardian/child_setup.h"
#include "retinue/base/error.h"

namespace retinue {

int debug_command(const DebugOptions& options) {
  FoundJob job = choose_job(options.job);
  const std::vector<RankView> ranks =
      choose_ranks(job, view_ranks(*job.memory), {.rank = options.rank, .context = options.context});
  if (ranks.size() > 1) {
    std::string contexts;
    for (const RankView& rank : ranks) contexts += fmt::format("\n  --context {} (pid {})", rank.context, rank.pid);
    throw Error(
        fmt::format("several contexts of job {} have a rank {}; choose one:{}", job.name(), options.rank, contexts));
  }
  const FileDescriptor pause = pause_deadlines(job);
  fcntl(pause.get(), F_SETFD, 0);  // gdb has it until it ends, however that comes.
  unsetenv(kBootstrapVariable);    // In a rank's shell: gdb is no rank.
  const std::string pid = std::to_string(ranks.front().pid);
  std::fflush(stdout);
  execlp("gdb", "gdb", "-p", pid.c_str(), static_cast<char*>(nullptr));
  throw SystemError(
      "executing gdb: install it (Debian: apt install gdb), or start the rank under another debugger: "
      "retinue run --wrap 'lldb --' --wrap-ranks R",
      errno);
}

}  // namespace retinue
