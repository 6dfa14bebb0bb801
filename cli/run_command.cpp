#include "run_command.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <thread>

#include "retinue/base/error.h"
#include "retinue/launch/spawn.h"

namespace retinue {
namespace {

/// A port that is free now: the program's rank 0 may listen on it.
int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const bool found = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!found) throw SystemError("finding a free port for MASTER_PORT", error);
  return ntohs(address.sin_port);
}

std::string value_or(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// What torchrun sets; RANK, LOCAL_RANK, WORLD_SIZE and LOCAL_WORLD_SIZE are set for every rank anyway.
std::map<std::string, std::string> torchrun_environment(int rank, int world_size, const std::string& port) {
  const std::string size = std::to_string(world_size);
  const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  return {{"GROUP_RANK", "0"},
          {"ROLE_RANK", std::to_string(rank)},
          {"ROLE_NAME", "default"},
          {"GROUP_WORLD_SIZE", "1"},
          {"ROLE_WORLD_SIZE", size},
          {"MASTER_ADDR", value_or("MASTER_ADDR", "127.0.0.1")},
          {"MASTER_PORT", port},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_USE_AGENT_STORE", "False"},
          {"TORCH_NCCL_ASYNC_ERROR_HANDLING", value_or("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")},
          {"OMP_NUM_THREADS", value_or("OMP_NUM_THREADS", std::to_string(std::max(1, cpus / world_size)))}};
}

/// Takes the signals meant for this command on a thread of its own and passes them to the ranks.
class SignalForwarder {
 public:
  explicit SignalForwarder(ProcessContext& ranks) : ranks_(ranks) {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT}) sigaddset(&signals_, signal);
    sigaddset(&signals_, kWake);
    pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
    thread_ = std::thread([this] { forward(); });
  }
  ~SignalForwarder() {
    pthread_kill(thread_.native_handle(), kWake);
    thread_.join();
  }
  SignalForwarder(const SignalForwarder&) = delete;
  SignalForwarder& operator=(const SignalForwarder&) = delete;

  /// The signal that asked for the end; 0 if none did.
  int ended_by() const { return ended_by_; }

 private:
  static constexpr int kWake = SIGALRM;

  void forward() {
    for (int signal = 0; sigwait(&signals_, &signal) == 0 && signal != kWake;) {
      const bool ends = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
      try {
        ranks_.signal(ends && ended_by_ != 0 ? SIGKILL : signal);  // Asked twice: without grace.
        if (ends && ended_by_ == 0) ranks_.terminate();
      } catch (const Error&) {
        return;  // The guardian is gone; join() says so.
      }
      if (ends) ended_by_ = signal;
    }
  }

  ProcessContext& ranks_;
  sigset_t signals_;
  std::thread thread_;
  std::atomic<int> ended_by_ = 0;
};

int exit_code_of(const ProcessException& failure) {
  const RankOutcome& outcome = failure.outcome();
  if (outcome.signal != 0) return 128 + outcome.signal;
  return outcome.exit_code != 0 ? outcome.exit_code : 1;
}

}  // namespace

int run_command(const RunOptions& options) {
  const std::string port = value_or("MASTER_PORT", std::to_string(free_port()));
  std::vector<Program> programs;
  for (int rank = 0; rank < options.nproc_per_node; ++rank)
    programs.push_back({options.command.front(),
                        {options.command.begin() + 1, options.command.end()},
                        torchrun_environment(rank, options.nproc_per_node, port)});
  ProcessContext ranks = start_processes({.name = options.command.front()}, programs);
  SignalForwarder forwarder(ranks);
  try {
    ranks.join();
  } catch (const ProcessException& failure) {
    std::fprintf(stderr, "retinue run: %s\n", failure.what());
    return exit_code_of(failure);
  }
  return forwarder.ended_by() != 0 ? 128 + forwarder.ended_by() : 0;
}

}  // namespace retinue
