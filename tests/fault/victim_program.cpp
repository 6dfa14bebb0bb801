// A program with ranks, for tests that kill it: prints "ready" when all ranks run, then waits for its end.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "retinue/launch/spawn.h"

namespace {

void announce_and_wait(retinue::RankContext&, int leave_grandchild) {
  if (leave_grandchild != 0 && fork() == 0) {
    setsid();
    std::printf("grandchild %d\n", getpid());
    const char* const bare[] = {"sleep", "100", nullptr};
    // Without a mark: no variable, no mapping.
    if (leave_grandchild == 2) execve("/bin/sleep", const_cast<char**>(bare), const_cast<char**>(bare + 2));
    for (;;) pause();
  }
  std::printf("rank\n");
  for (;;) pause();
}

void fail_beside_another(retinue::RankContext& context) {
  if (context.rank() == 0) throw std::runtime_error("rank 0 cannot");
  for (;;) pause();
}

/// A rank that SIGTERM does not end, nor SIGKILL where the test takes care of that.
int tell_of_a_deaf_rank(retinue::StartMethod start) try {
  using std::chrono::milliseconds;
  retinue::spawn<fail_beside_another>({.nprocs = 2,
                                       .start_method = start,
                                       .stop = {.terminate_wait = milliseconds(50), .kill_wait = milliseconds(100)}});
  return 0;
} catch (const retinue::ProcessException& failure) {
  std::printf("%s\n", failure.what());
  return failure.outcomes()[1].abandoned ? 7 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_deaf = argc > 2 && std::string(argv[2]) == "deaf";
  if (is_deaf) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, nullptr);  // In the ranks, too.
  }
  retinue::Runtime runtime(argc, argv);
  const std::string method = argc > 1 ? argv[1] : "forkserver";
  const retinue::StartMethod start = method == "spawn"  ? retinue::StartMethod::kSpawn
                                     : method == "fork" ? retinue::StartMethod::kFork
                                                        : retinue::StartMethod::kForkserver;
  if (is_deaf) return tell_of_a_deaf_rank(start);
  const std::string wanted = argc > 2 ? argv[2] : "";
  const int grandchild = wanted == "grandchild" ? 1 : wanted == "bare grandchild" ? 2 : 0;
  retinue::spawn<announce_and_wait>({.nprocs = 2, .start_method = start}, grandchild);
}
