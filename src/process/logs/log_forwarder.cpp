#include "process/logs/log_forwarder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "os/process/process_calls.h"
#include "os/process/scheduling.h"
#include "os/process/signal_names.h"
#include "process/logs/tee.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr int kMaxStarts = 4;
/// Longer than the forwarder's own patience with a console: this is for a forwarder that is stuck itself.
constexpr auto kCheckTime = std::chrono::seconds(10);
constexpr unsigned kSecondsAfterGuardian = 4;

/// A forwarder outlives its guardian by the time that it needs to show what is there. This ends one that is stuck.
void on_guardian_death(int) {
  signal(SIGALRM, SIG_DFL);
  alarm(kSecondsAfterGuardian);
}

void watch_guardian(pid_t guardian) {
  sigset_t mask;
  sigfillset(&mask);  // A terminal may stop who writes in the background, but not one that blocks the signal.
  sigdelset(&mask, SIGALRM);
  struct sigaction action {};
  action.sa_handler = on_guardian_death;
  sigaction(SIGALRM, &action, nullptr);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGALRM);
  if (getppid() != guardian) on_guardian_death(SIGALRM);
}

/// -1 when the guardian is gone already.
FileDescriptor pidfd_of_parent(pid_t guardian) {
  FileDescriptor pidfd = open_pidfd(guardian);
  return getppid() == guardian ? std::move(pidfd) : FileDescriptor();
}

FileDescriptor copy_of(const FileDescriptor& original) {
  FileDescriptor copy(fcntl(original.get(), F_DUPFD_CLOEXEC, 3));
  if (!copy) throw SystemError("duplicating the console's descriptor for a log forwarder", errno);
  return copy;
}

}  // namespace

LogForwarder::LogForwarder(const LogRequest& logs, const std::vector<FileDescriptor>& standard, CallerRights rights)
    : logs_(logs), rights_(std::move(rights)) {
  if (!logs.shows_any()) return;
  try {
    if (standard.size() < 3) throw SystemError("passing the console to the guardian", EBADF);
    output_ = copy_of(standard[1]);
    error_ = copy_of(standard[2]);
    wake_.reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!wake_) throw SystemError("eventfd for a log forwarder", errno);
    board_.emplace(Tee::streams_of(logs));
    start_showing();
  } catch (const SystemError& error) {  // The ranks need no helper.
    is_unshown_ = true;
    print(fmt::format("retinue: the output of {} is not shown: {}; see {}", logs.name, error.what(), logs.directory));
  }
}

void LogForwarder::start_showing() {
  const pid_t guardian = getpid();
  ++starts_;
  const pid_t pid = fork();
  if (pid == 0) run_forwarder(guardian);
  if (pid < 0) {
    is_unshown_ = true;
    print(fmt::format("retinue: cannot fork a process to show the output of {} ({}): see {}", logs_.name,
                      strerrordesc_np(errno), logs_.directory));
  }
  pid_ = std::max(pid, 0);
  task_ = pid_ == 0 ? Task::kNone : Task::kShow;
}

void LogForwarder::run_forwarder(pid_t guardian) const {
  signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_NAME, "retinue-helper");
  request_default_slice();
  try {
    if (rights_.differ()) rights_.take();
    watch_guardian(guardian);
    keep_only_descriptors({open("/dev/null", O_RDONLY), output_.get(), error_.get(), wake_.get()});
    const FileDescriptor guardian_pidfd = pidfd_of_parent(guardian);
    Tee tee(logs_, *board_, {3, guardian_pidfd.get(), STDOUT_FILENO, STDERR_FILENO});
    _exit(static_cast<int>(tee.run()));
  } catch (const std::exception& error) {
    print(fmt::format("retinue: the process that shows the output of {} failed: {}", logs_.name, error.what()));
  }
  _exit(static_cast<int>(TeeEnd::kTroubled));
}

void LogForwarder::start_removing() {
  const pid_t guardian = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_NAME, "retinue-helper");
    try {
      if (rights_.differ()) rights_.take();
    } catch (const Error& error) {
      print(fmt::format("retinue: {} was not removed: {}", logs_.directory, error.what()));
      _exit(1);
    }
    die_with_parent(guardian);
    std::error_code error;
    std::filesystem::remove_all(logs_.directory, error);
    if (error) print(fmt::format("retinue: removing {}: {}", logs_.directory, error.message()));
    _exit(0);
  }
  pid_ = std::max(pid, 0);
  task_ = pid_ == 0 ? Task::kNone : Task::kRemove;
  if (pid_ != 0) {
    deadline_ = Clock::now() + kCheckTime;
  } else {
    print(fmt::format("retinue: {} was not removed: cannot fork a process for it", logs_.directory));
  }
}

void LogForwarder::on_exit(int status) {
  const Task task = task_;
  pid_ = 0;
  task_ = Task::kNone;
  deadline_.reset();
  if (task != Task::kShow) return;
  const bool exited = WIFEXITED(status);
  if (exited && WEXITSTATUS(status) == static_cast<int>(TeeEnd::kGaveUp)) {
    files_ = Files::kKeep;
    print(fmt::format("retinue: the console accepted no output for some seconds: the rest of the output of {} is in {}",
                      logs_.name, logs_.directory));
  } else if (!exited || WEXITSTATUS(status) != static_cast<int>(TeeEnd::kDone)) {
    replace_killed(status);
    if (pid_ != 0) return;
  }
  if (is_finishing_ && files_ == Files::kRemoveTemporary) start_removing();
}

void LogForwarder::replace_killed(int status) {
  if (WIFSIGNALED(status) && !has_said_killed_)
    print(fmt::format(
        "retinue: the process that shows the output of {} was killed by {}; the ranks continue and write to {}",
        logs_.name, signal_name(WTERMSIG(status)), logs_.directory));
  has_said_killed_ = true;
  if (starts_ < kMaxStarts) {
    start_showing();
    if (is_finishing_) deadline_ = Clock::now() + kCheckTime;
    if (pid_ != 0) return;
  }
  files_ = Files::kKeep;
  print(fmt::format("retinue: the output of {} is no longer shown: see {}", logs_.name, logs_.directory));
}

void LogForwarder::order(TeeBoard::Order order) {
  is_finishing_ = true;
  if (!board_) return;
  board_->order().store(order, std::memory_order_release);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  seen_written_bytes_ = board_->written_bytes().load(std::memory_order_relaxed);
  if (pid_ != 0) deadline_ = Clock::now() + kCheckTime;
}

void LogForwarder::finish(Files files) {
  if (is_finishing_) return;
  files_ = logs_.is_temporary && !is_unshown_ ? files : Files::kKeep;
  order(TeeBoard::Order::kFinish);
  if (pid_ == 0 && files_ == Files::kRemoveTemporary) start_removing();
}

void LogForwarder::limit_drain() {
  files_ = Files::kKeep;
  order(TeeBoard::Order::kHurry);
}

void LogForwarder::on_time(Clock::time_point now) {
  if (!deadline_ || now < *deadline_ || pid_ == 0) return;
  const std::uint64_t written = board_ ? board_->written_bytes().load(std::memory_order_relaxed) : 0;
  if (task_ == Task::kShow && written != std::exchange(seen_written_bytes_, written)) {
    deadline_ = now + kCheckTime;  // A slow console, but one that somebody reads.
    return;
  }
  deadline_.reset();
  if (task_ == Task::kShow) {
    starts_ = kMaxStarts;
    has_said_killed_ = true;
  }
  kill(pid_, SIGKILL);
}

void LogForwarder::print(const std::string& text) const {
  const std::string line = text + "\n";
  for (const int fd : {error_ ? error_.get() : STDERR_FILENO, STDERR_FILENO}) {
    pollfd entry{fd, POLLOUT, 0};
    if (poll(&entry, 1, 0) == 1 && (entry.revents & POLLOUT) != 0 && write(fd, line.data(), line.size()) > 0) return;
  }
}

}  // namespace retinue
