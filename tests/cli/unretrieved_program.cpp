// Starts a rank that fails, and does with what spawn returned what its argument says.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "ipc/memory/context_table.h"
#include "os/process/process_calls.h"
#include "os/sync/futex.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"

namespace {

void fail(int, int gate, int programs_end) {
  close(programs_end);
  char byte = 0;
  [[maybe_unused]] const ssize_t got = read(gate, &byte, 1);  // Until the program has closed its end.
  throw std::runtime_error("the failure of the test");
}

void fail_at_once(int) {
  throw std::runtime_error("the failure of the test");
}

int die_in_task(int) {
  _exit(5);
}

retinue::ProcessContext*& never_destroyed() {
  static retinue::ProcessContext* context = nullptr;
  return context;
}

void wait_for(pid_t pid) {
  const retinue::FileDescriptor pidfd = retinue::open_pidfd(pid);
  pollfd end{pidfd.get(), POLLIN, 0};
  poll(&end, 1, -1);
}

/// Of what this process started, without asking how it ended.
void wait_for_end(const retinue::JobMemory& memory) {
  for (std::uint32_t index = 0;; ++index) {
    const retinue::ContextRecord& record = retinue::context_record(memory, index);
    if (record.state == retinue::ContextRecord::kFree || record.parent_slot != memory.own_slot()) continue;
    while (record.state != retinue::ContextRecord::kEnded) {
      const std::uint32_t seen = record.changed;
      if (record.state != retinue::ContextRecord::kEnded)
        retinue::futex_wait(record.changed, seen, std::chrono::seconds(60));
    }
    return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  retinue::Runtime runtime(argc, argv);
  int gate[2];
  if (pipe2(gate, O_CLOEXEC) != 0) return 2;
  if (what == "pool") {
    retinue::Pool pool({.processes = 1});
    try {
      pool.apply<die_in_task>(1);
    } catch (const retinue::ProcessException&) {
      std::puts("lost");
    }
    return 0;
  }
  if (what == "process") {
    retinue::Process<fail_at_once> process(1);
    process.start();
    process.join();
    return 0;
  }
  auto ranks = std::make_unique<retinue::ProcessContext>(
      retinue::spawn<fail>({.start_method = retinue::StartMethod::kFork, .join = false}, gate[0], gate[1]));
  const pid_t pid = ranks->pids()[0];
  if (what == "dropped before") ranks.reset();
  close(gate[1]);
  if (what == "left running") return 0;
  wait_for(pid);
  if (what == "exit" || what == "_exit") wait_for_end(*runtime.memory());
  if (what == "exit") std::exit(0);
  if (what == "_exit") _exit(0);
  if (what == "dropped after") ranks.reset();
  if (what == "leaked") never_destroyed() = ranks.release();
  if (what == "asked")
    while (ranks->status()[0].end == retinue::RankEnd::kRunning) usleep(1000);
  if (what == "waited") ranks->wait();
  if (what == "own code") {
    ranks.reset();
    return 7;
  }
  return 0;
}
