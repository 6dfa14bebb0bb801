#include "os/process/process_calls.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "os/files/descriptor_calls.h"
#include "os/files/kernel_files.h"
#include "os/machine/valgrind.h"
#include "os/process/process_stat.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Address of the thread id in glibc's thread descriptor, which robust locks write into shared memory.
pid_t* glibc_thread_id(void* robust_list_head) {
  const auto own = static_cast<pid_t>(syscall(SYS_gettid));
  pid_t* address = nullptr;
  if (prctl(PR_GET_TID_ADDRESS, &address) == 0 && address != nullptr && *address == own) return address;
  // Kernels without checkpoint support lack PR_GET_TID_ADDRESS; the id stands 16 bytes before the robust list.
  address = reinterpret_cast<pid_t*>(static_cast<char*>(robust_list_head) - 16);
  return *address == own ? address : nullptr;
}

void reset_signal_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_DFL || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }
}

/// In the child of fork_to_execute().
[[noreturn]] void run_to_execution(const std::function<void()>& body) {
  reset_signal_handlers();
  body();
  _exit(127);
}

}  // namespace

pid_t fork_unnoticed() {
  void* robust_list_head = nullptr;
  std::size_t robust_list_bytes = 0;
  if (syscall(SYS_get_robust_list, 0, &robust_list_head, &robust_list_bytes) != 0)
    throw SystemError("get_robust_list", errno);
  pid_t* thread_id = glibc_thread_id(robust_list_head);
  if (thread_id == nullptr) throw SystemError("finding glibc's thread id", ENOTSUP);
  // clone, not clone3, which older container profiles refuse. The low byte of the flags is the exit signal: none.
  constexpr unsigned long kFlags = CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
#if defined(__x86_64__)
  const long pid = syscall(SYS_clone, kFlags, nullptr, nullptr, thread_id, nullptr);
#else
  const long pid = syscall(SYS_clone, kFlags, nullptr, nullptr, nullptr, thread_id);
#endif
  if (pid < 0) throw SystemError("clone", errno);
  if (pid == 0) syscall(SYS_set_robust_list, robust_list_head, robust_list_bytes);
  return static_cast<pid_t>(pid);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

pid_t fork_to_execute(const std::function<void()>& body, std::size_t) {
  const pid_t pid = fork();
  if (pid == 0) run_to_execution(body);
  return pid;
}

#else

namespace {

/// The caller stands still until the child has executed: a folder or a file on a file system that does not answer must
/// not keep it for ever. Executing ends the timer.
void end_if_stuck() {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  itimerspec limit{};
  limit.it_value.tv_sec = 30;
  timer_t timer{};
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) timer_settime(timer, 0, &limit, nullptr);
}

}  // namespace

pid_t fork_to_execute(const std::function<void()>& body, std::size_t stack_bytes) {
  constexpr std::size_t kGuardBytes = 64 << 10;
  const std::size_t bytes = stack_bytes + kGuardBytes;
  void* const stack =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (stack == MAP_FAILED) return -1;
  mprotect(stack, kGuardBytes, PROT_NONE);
  // A handler that ran in the child would run in our memory.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  char** const environment = environ;
  const auto run = [](void* argument) -> int {
    end_if_stuck();
    run_to_execution(*static_cast<const std::function<void()>*>(argument));
  };
  const pid_t pid = clone(run, static_cast<char*>(stack) + bytes, CLONE_VM | CLONE_VFORK | SIGCHLD,
                          const_cast<std::function<void()>*>(&body));
  const int error = errno;
  environ = environment;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  munmap(stack, bytes);
  errno = error;
  return pid;
}

#endif

FileDescriptor open_pidfd(pid_t pid) {
  FileDescriptor fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (fd) return fd;
  if (errno == ENOSYS && runs_on_valgrind())
    throw SystemError(
        "pidfd_open, which this valgrind does not support: start the program with retinue run --wrap 'valgrind -q' "
        "PROGRAM, where only descriptors for poll() need it",
        ENOSYS);
  throw SystemError("pidfd_open", errno);
}

pid_t pid_of(int pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd));
  for (std::string line; std::getline(info, line);) {
    long pid = 0;
    if (std::sscanf(line.c_str(), "Pid: %ld", &pid) == 1) return pid > 0 ? static_cast<pid_t>(pid) : 0;
  }
  return 0;
}

bool wait_for_exit(int pidfd, std::chrono::milliseconds timeout) {
  try {
    return wait_ready(pidfd, POLLIN, Deadline::after(timeout));
  } catch (const SystemError&) {
    return false;
  }
}

void send_signal_to(int pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) != 0 && errno != ESRCH)
    throw SystemError("pidfd_send_signal", errno);
}

int count_tasks() {
  const auto tasks = numbers_in_folder("/proc/self/task");
  if (!tasks) throw SystemError("opening /proc/self/task (is /proc mounted here?)", errno);
  return static_cast<int>(tasks->size());
}

std::vector<pid_t> children_of_self() {
  std::vector<pid_t> children;
  std::ifstream list("/proc/thread-self/children");
  if (!list) throw SystemError("opening /proc/thread-self/children", errno);
  for (pid_t pid = 0; list >> pid;) children.push_back(pid);
  return children;
}

void become_subreaper() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void die_with_parent(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
}

void allow_ptrace(pid_t process) {
  prctl(PR_SET_PTRACER, process);  // Refused where there is no Yama, and nothing to be let.
}

std::string executable_path() {
  std::string path = target_of_link("/proc/self/exe");
  return path.empty() ? "/proc/self/exe" : path;
}

FileIdentity executable_identity() {
  struct stat status {};
  if (stat("/proc/self/exe", &status) != 0) throw SystemError("stat of /proc/self/exe", errno);
  return {status.st_dev, status.st_ino};
}

int exit_status_of_zombie(pid_t pid) {
  const std::optional<ProcessStat> stat = process_stat(pid);
  return stat && (stat->state == 'Z' || stat->state == 'X') ? stat->exit_status : -1;
}

int exit_status_of_ending(pid_t pid) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING, which zombies keep; the same since Linux 2.4.
  const std::optional<ProcessStat> stat = process_stat(pid);
  return stat && (stat->flags & kExiting) != 0 ? stat->exit_status : -1;
}

int exit_status_of_reaped(int pidfd) {
  struct PidfdInfo {  // struct pidfd_info of the kernel, its first version; glibc 2.36 does not declare it.
    std::uint64_t mask;
    std::uint64_t cgroup;
    std::uint32_t ids[11];
    std::int32_t exit_status;
  };
  static_assert(sizeof(PidfdInfo) == 64);
  constexpr std::uint64_t kExit = 1u << 3;
  PidfdInfo info{};
  info.mask = kExit;
  if (ioctl(pidfd, _IOWR(0xff, 11, PidfdInfo), &info) != 0 || (info.mask & kExit) == 0) return -1;
  return info.exit_status;
}

void keep_only_descriptors(const std::vector<int>& fds) {
  // Through high numbers, so that none overwrites another that is still needed.
  std::vector<int> copies;
  for (const int fd : fds) copies.push_back(fcntl(fd, F_DUPFD, 16));
  for (int i = 0; i < static_cast<int>(fds.size()); ++i)
    if (dup2(copies[static_cast<std::size_t>(i)], i) < 0) throw SystemError("passing on descriptors", errno);
  if (close_range(static_cast<unsigned>(fds.size()), ~0u, 0) != 0) throw SystemError("close_range", errno);
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace retinue
