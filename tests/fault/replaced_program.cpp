// Has two ranks that it forked itself, writes their pids as ints to standard output, and executes something else. With
// an argument its guardian is stopped all the time, and goes on after the program has executed something else.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "os/process/process_calls.h"
#include "retinue/launch/spawn.h"

namespace {

void stay(retinue::RankContext&) {
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  std::string script = "exec sleep infinity";
  static_cast<void>(runtime.job_name());  // Waits for the guardian.
  const pid_t guardian = retinue::process_slot(*runtime.memory(), retinue::kGuardianSlot).pid;
  if (argc > 1) {
    kill(guardian, SIGSTOP);
    if (waitpid(guardian, nullptr, WUNTRACED | __WALL) != guardian) return 3;
    script = "kill -CONT " + std::to_string(guardian) + "; " + script;
  }
  const retinue::ProcessContext ranks =
      retinue::spawn<stay>({.nprocs = 2, .start_method = retinue::StartMethod::kFork, .join = false});
  std::vector<int> pids = retinue::children_of_self();  // ProcessContext::pids() would wait for the guardian.
  std::erase(pids, guardian);
  if (write(1, pids.data(), pids.size() * sizeof(int)) < 0) return 1;
  execl("/bin/sh", "sh", "-c", script.c_str(), nullptr);
  return 2;
}
