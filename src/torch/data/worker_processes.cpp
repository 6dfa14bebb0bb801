#include "torch/data/worker_processes.h"

#include <ATen/Parallel.h>
#include <c10/util/StringUtil.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// What a fork does before its work. The terminal's Ctrl-C and the job's SIGTERM are for the process that has the
/// loader, with whose end the worker ends.
void set_up_worker(std::size_t worker, pid_t parent, bool is_main_thread) {
  signal(SIGINT, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  // The signal comes when the thread that forked ends: only the main thread lives as long as its process.
  if (is_main_thread) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  prctl(PR_SET_NAME, c10::str("data worker ", worker).c_str());
  at::set_num_threads(1);  // OpenMP's threads were not forked.
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status))
    return c10::str("was killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                    WTERMSIG(status) == SIGBUS ? ": a mapped file may have become shorter)" : ")");
  return c10::str("ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

WorkerProcesses::WorkerProcesses(std::size_t count, Body body) : body_(std::move(body)), owner_(getpid()) {
  try {
    for (std::size_t worker = 0; worker < count; ++worker) pids_.push_back(start(worker));
  } catch (...) {
    kill_all();
    throw;
  }
}

WorkerProcesses::~WorkerProcesses() {
  kill_all();
}

void WorkerProcesses::replace_ended() {
  for (std::size_t worker = 0; worker < pids_.size(); ++worker)
    if (pids_[worker] == 0) pids_[worker] = start(worker);
}

void WorkerProcesses::kill_worker(std::size_t worker) const noexcept {
  if (pids_[worker] != 0) kill(pids_[worker], SIGKILL);
}

void WorkerProcesses::kill_all() noexcept {
  if (getpid() != owner_) return;  // A fork of it destroys its copy.
  for (std::size_t worker = 0; worker < pids_.size(); ++worker) kill_worker(worker);
  for (pid_t& pid : pids_) {
    while (pid != 0 && waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    pid = 0;
  }
}

pid_t WorkerProcesses::start(std::size_t worker) {
  const pid_t parent = getpid();
  const bool is_main_thread = gettid() == parent;
  const pid_t pid = fork();
  if (pid < 0)
    throw SystemError(c10::str("DataLoader: can't fork worker ", worker,
                               "; lower `workers`, or raise the limits on processes and memory"),
                      errno);
  if (pid != 0) return pid;
  try {
    set_up_worker(worker, parent, is_main_thread);
    body_(worker, [parent] { return getppid() != parent; });
  } catch (...) {
    _exit(1);  // The data set's exceptions don't come here.
  }
  _exit(0);
}

std::optional<WorkerProcesses::Death> WorkerProcesses::find_death() {
  for (std::size_t worker = 0; worker < pids_.size(); ++worker) {
    const pid_t pid = pids_[worker];
    if (pid == 0) continue;
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == 0 || (ended < 0 && errno != ECHILD)) continue;
    pids_[worker] = 0;
    return Death{worker, pid,
                 ended < 0 ? "ended; another wait() of this process has its status" : how_it_ended(status)};
  }
  return std::nullopt;
}

}  // namespace retinue
