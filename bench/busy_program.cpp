#include "busy_program.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <system_error>

namespace retinue::bench {
namespace {

void keep_to_last_cpu() {
  cpu_set_t all;
  CPU_ZERO(&all);
  sched_getaffinity(0, sizeof all, &all);
  int last = CPU_SETSIZE - 1;
  while (last > 0 && !CPU_ISSET(last, &all)) --last;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  sched_setaffinity(0, sizeof one, &one);
}

}  // namespace

BusyProgram::BusyProgram() : pid_(fork()) {
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork of a busy program");
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  keep_to_last_cpu();
  for (volatile unsigned turns = 0;;) turns = turns + 1;
}

BusyProgram::~BusyProgram() {
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace retinue::bench
