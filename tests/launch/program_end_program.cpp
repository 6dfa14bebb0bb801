// Ends while its ranks run. Arguments: what to do, start method. Ranks say "NAME PID" when they are ready, and what
// signal they got.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include "retinue/launch/spawn.h"

namespace {

constexpr auto kLong = std::chrono::hours(1);

void wait_for_a_signal(retinue::RankContext&, const std::string& name) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  std::printf("%s %d\n", name.c_str(), getpid());
  int signal = 0;
  sigwait(&set, &signal);
  std::printf("%s %s\n", name.c_str(), signal == SIGTERM ? "stopped" : "finished");
}

void have_a_child(retinue::RankContext& context, const std::string& name) {
  auto child = retinue::spawn<wait_for_a_signal>({.join = false}, "child");
  wait_for_a_signal(context, name);
  child.signal(SIGUSR1);
  child.join();
}

void wait_until_running(retinue::ProcessContext& ranks) {
  while (ranks.status()[0].pid == 0) usleep(1000);
}

}  // namespace

int main(int argc, char** argv) try {
  retinue::Runtime runtime(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "";
  const std::string method = argc > 2 ? argv[2] : "forkserver";
  const retinue::StartMethod start = method == "spawn"  ? retinue::StartMethod::kSpawn
                                     : method == "fork" ? retinue::StartMethod::kFork
                                                        : retinue::StartMethod::kForkserver;
  using std::chrono::milliseconds;
  retinue::SpawnOptions options = {.start_method = start, .join = false, .exit_grace = kLong};
  retinue::SpawnOptions daemonic = options;
  daemonic.daemon = true;
  if (what == "short grace") options.exit_grace = milliseconds(50);
  auto worker = what == "child" ? retinue::spawn<have_a_child>(options, "worker")
                                : retinue::spawn<wait_for_a_signal>(options, "worker");
  wait_until_running(worker);
  std::optional<retinue::ProcessContext> daemon;
  if (what != "short grace") daemon = retinue::spawn<wait_for_a_signal>(daemonic, "daemon");
  // The test says when all are ready.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR2);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  std::printf("program %d\n", getpid());
  std::fflush(stdout);
  int signal = 0;
  sigwait(&set, &signal);
  if (what == "exception") throw std::runtime_error("leaves main's scope");
} catch (const std::runtime_error&) {
  return 7;
}
