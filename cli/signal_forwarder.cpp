#include "signal_forwarder.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) == 0 &&
         action.sa_handler == SIG_IGN;
}

/// As PID 1 of a container this process is given orphans that never were its own.
void reap_strangers() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) continue;  // Never the guardian, which needs __WALL.
}

}  // namespace

SignalForwarder::SignalForwarder(std::vector<int> ending_signals) : ending_signals_(std::move(ending_signals)) {
  sigemptyset(&signals_);
  for (const int signal : ending_signals_)
    if (!is_ignored(signal)) sigaddset(&signals_, signal);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP})
    if (!is_ignored(signal)) sigaddset(&signals_, signal);
  if (getpid() == 1) sigaddset(&signals_, SIGCHLD);
  sigaddset(&signals_, SIGRTMIN);  // The destructor's.
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::thread([this] { serve(); });
}

SignalForwarder::~SignalForwarder() {
  is_over_ = true;
  pthread_kill(thread_.native_handle(), SIGRTMIN);
  thread_.join();
}

bool SignalForwarder::ends(int signal) const {
  return std::ranges::count(ending_signals_, signal) > 0;
}

void SignalForwarder::serve() {
  for (int signal = 0; !is_over_;) {
    if (sigwait(&signals_, &signal) != 0 || signal == SIGRTMIN) continue;
    if (signal == SIGCHLD && getpid() == 1) {
      reap_strangers();
      continue;
    }
    bool is_passed = true;
    try {
      is_passed = pass_on(signal);
    } catch (const Error&) {
      // The guardian is gone; join() says so.
    }
    // The signal itself, blocked here, would do nothing; the shell sees a stopped job all the same.
    if (signal == SIGTSTP && !ends(SIGTSTP) && is_passed) kill(getpid(), SIGSTOP);
  }
}

/// As the kernel keeps signals: one of each, and of these two the last.
void SignalForwarder::keep(int signal) {
  if (signal == SIGTSTP) std::erase(early_signals_, SIGCONT);
  if (signal == SIGCONT) std::erase(early_signals_, SIGTSTP);
  if (std::ranges::count(early_signals_, signal) == 0) early_signals_.push_back(signal);
}

bool SignalForwarder::pass_on(int signal) {
  const std::lock_guard lock(mutex_);
  if (!ends(signal)) {
    if (ranks_ != nullptr) {
      ranks_->signal(signal);
    } else {
      keep(signal);
    }
    return !is_starting_;
  }
  const bool is_second = ended_by_ != 0;
  if (!is_second) ended_by_ = signal;
  if (ranks_ != nullptr) ranks_->terminate(is_second ? SIGKILL : signal);
  return true;
}

ProcessContext SignalForwarder::start_ranks(const std::function<ProcessContext()>& start) {
  const auto set_starting = [this](bool is_starting) {
    const std::lock_guard lock(mutex_);
    is_starting_ = is_starting;
  };
  set_starting(true);
  try {
    return start();
  } catch (...) {
    set_starting(false);
    throw;
  }
}

SignalForwarder::Receiver::Receiver(SignalForwarder& forwarder, const std::function<ProcessContext()>& start)
    : forwarder_(forwarder), ranks_(forwarder.start_ranks(start)) {
  const std::lock_guard lock(forwarder_.mutex_);
  forwarder_.is_starting_ = false;
  forwarder_.ranks_ = &ranks_;
  const std::vector<int> early = std::exchange(forwarder_.early_signals_, {});
  for (const int signal : early) ranks_.signal(signal);
  if (forwarder_.ended_by_ != 0) ranks_.terminate(forwarder_.ended_by_);
  if (std::ranges::count(early, SIGTSTP) > 0) kill(getpid(), SIGSTOP);
}

SignalForwarder::Receiver::~Receiver() {
  const std::lock_guard lock(forwarder_.mutex_);
  forwarder_.ranks_ = nullptr;
}

}  // namespace retinue
