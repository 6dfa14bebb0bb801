// Fails in the way of its first argument, for tests that look at the error file that it leaves.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "retinue/launch/spawn.h"

namespace {

void fail_in_rank(retinue::RankContext& context) {
  if (context.rank() == 1) throw std::out_of_range("the rank's failure");
  for (;;) pause();
}

[[gnu::noinline]] void fail_in_program() {
  throw std::runtime_error("the program's failure");
}

/// Without a guardian nobody writes the file, and nobody may wait for it.
void kill_guardian() {
  const std::string path = "/proc/self/task/" + std::to_string(getpid()) + "/children";
  FILE* children = std::fopen(path.c_str(), "r");
  int guardian = 0;
  if (children == nullptr || std::fscanf(children, "%d", &guardian) != 1) std::exit(99);
  std::fclose(children);
  kill(guardian, SIGKILL);
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string how = argc > 1 ? argv[1] : "";
  if (how == "rank") {
    try {
      retinue::spawn<fail_in_rank>({.nprocs = 2});
    } catch (const retinue::ProcessException&) {
      return 1;
    }
  }
  if (how == "uncaught rank") retinue::spawn<fail_in_rank>({.nprocs = 2});
  if (how == "without guardian") kill_guardian();
  if (how == "program" || how == "without guardian") fail_in_program();
  if (how == "signal") raise(SIGSEGV);
  if (how == "two threads") {
    // The second fails while the first one's failure is being written down.
    std::thread([] { throw std::length_error("a second failure"); }).detach();
    fail_in_program();
  }
  if (how == "exit") return 3;
  if (how == "return") return 0;
  return 98;
}
