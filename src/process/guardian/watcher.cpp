#include "process/guardian/watcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include "ipc/memory/job_layout.h"
#include "os/files/environment.h"
#include "os/process/process_calls.h"
#include "os/process/process_stat.h"
#include "os/process/scheduling.h"
#include "process/guardian/job_sweep.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

constexpr auto kKillTime = std::chrono::seconds(10);
/// More than the guardian takes after the program's end; then it hangs, or is stopped.
constexpr auto kGuardianTime = std::chrono::seconds(60);

/// Who kills program and guardian may do it by the name of the program, as `pkill -f` does.
void change_name() {
  prctl(PR_SET_NAME, "retinue-watch");
  const auto [first, end] = own_process_stat().value_or(ProcessStat()).arguments;
  if (end <= first) return;
  auto* const arguments = reinterpret_cast<char*>(first);
  std::memset(arguments, 0, end - first);
  std::strncpy(arguments, "retinue-watch", end - first - 1);
}

[[noreturn]] void be_watcher(const JobMemory& memory, FileDescriptor program, FileDescriptor guardian,
                             const std::optional<KillCgroup>& cgroup) {
  setsid();
  change_name();
  request_default_slice();
  // Nothing of others': who reads from the program shall see its end.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  keep_only_descriptors({null, null, null, program.release(), guardian.release()});
  while (!wait_for_exit(3, std::chrono::hours(1))) continue;
  if (!wait_for_exit(4, kGuardianTime)) send_signal_to(4, SIGKILL);
  if (cgroup) cgroup->kill_and_remove(kKillTime);
  sweep_job(memory);
  _exit(0);
}

}  // namespace

void Watcher::start(const JobMemory& memory, int program_pidfd) {
  if (find_variable("RETINUE_WATCHER") != "1") return;
  std::string problem;
  cgroup_ = KillCgroup::make(fmt::format("retinue-{:016x}", memory.header().job_id), problem);
  const pid_t guardian = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      FileDescriptor guardian_pidfd = open_pidfd(getppid());
      if (getppid() == guardian) be_watcher(memory, FileDescriptor(program_pidfd), std::move(guardian_pidfd), cgroup_);
    } catch (const Error&) {
      // Without it, it is as if it had not been asked for.
    }
    _exit(1);
  }
  if (pid < 0)
    write_standard_error(fmt::format("retinue: cannot fork the watcher (RETINUE_WATCHER): {}\n", std::strerror(errno)));
  pid_ = pid > 0 ? pid : 0;
  add(0);
}

void Watcher::add(pid_t pid) const {
  if (cgroup_) cgroup_->add(pid);
}

void Watcher::end() {
  if (cgroup_ && cgroup_->leave()) cgroup_->kill_and_remove(kKillTime);
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, __WALL);
  pid_ = 0;
}

}  // namespace retinue
