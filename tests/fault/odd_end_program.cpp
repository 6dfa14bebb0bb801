// Programs whose ranks, guardian or descriptors end in unusual ways: odd_end_program MODE. Prints what became of it.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "retinue/launch/process.h"
#include "retinue/launch/spawn.h"

namespace {

using retinue::RankContext;
using retinue::StartMethod;
using std::chrono::hours;
using std::chrono::milliseconds;

/// What ranks and program tell each other, in job memory.
struct Signs {
  std::atomic<int> leave;
  std::atomic<int> grandchild;
};

retinue::JobMemory& memory() {
  return *retinue::Runtime::current().memory();
}

std::uint64_t make_signs() {
  const std::uint64_t offset = memory().allocate(sizeof(Signs)).offset;
  new (memory().at<Signs>(offset)) Signs{};
  return offset;
}

/// Zombies are gone: whose they are waits for them when it likes.
bool is_gone(int pid) {
  close(63);  // The last of a program that has taken all of 64.
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string number, name, state;
  return !(stat >> number >> name >> state) || state == "Z" || state == "X";
}

/// One that lives is ended here, or the test would wait for it.
const char* verdict_on(int grandchild) {
  if (is_gone(grandchild)) return "ok";
  kill(grandchild, SIGKILL);
  return "the grandchild lives";
}

void stay(RankContext& context, std::uint64_t signs) {
  while (context.memory()->at<Signs>(signs)->leave.load() == 0) usleep(1000);
}

/// Has a grandchild of another session, and ends when it is told so.
void leave_grandchild(RankContext& context, std::uint64_t offset) {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    for (;;) pause();
  }
  context.memory()->at<Signs>(offset)->grandchild.store(child);
  stay(context, offset);
}

int wait_for_grandchild(std::uint64_t signs) {
  while (memory().at<Signs>(signs)->grandchild.load() == 0) usleep(1000);
  return memory().at<Signs>(signs)->grandchild.load();
}

/// Whether all of `count` forked ranks, each of which costs the guardian a descriptor, run. `then` is done meanwhile.
bool run_forked(int count, const std::function<void()>& then) {
  const std::uint64_t signs = make_signs();
  retinue::ProcessContext ranks =
      retinue::spawn<stay>({.nprocs = count, .start_method = StartMethod::kFork, .join = false}, signs);
  bool fits = false;
  for (bool waits = true; waits; usleep(1000)) {
    const std::vector<retinue::RankOutcome> state = ranks.status();
    waits = std::ranges::any_of(state, [](const auto& rank) { return rank.end == retinue::RankEnd::kNotStarted; });
    fits = std::ranges::all_of(state, [](const auto& rank) { return rank.end == retinue::RankEnd::kRunning; });
  }
  if (fits) then();
  memory().at<Signs>(signs)->leave.store(1);
  ranks.wait();
  return fits;
}

/// The guardian has no descriptor left when the last context ends, and must see the orphan all the same.
void sweep_without_descriptors() {
  const std::uint64_t signs = make_signs();
  retinue::ProcessContext parent = retinue::spawn<leave_grandchild>({.nprocs = 1, .join = false}, signs);
  const int grandchild = wait_for_grandchild(signs);
  const auto end_parent = [&] {
    memory().at<Signs>(signs)->leave.store(1);
    parent.join();
  };
  int count = 60;
  while (count > 20 && !run_forked(count, end_parent)) --count;
  std::printf("%s\n", count == 20 ? "too few ranks" : verdict_on(grandchild));
}

/// The program has none, its guardian is killed, and a forked rank's orphan is the program's to end.
void sweep_as_a_program_without_descriptors() {
  const std::uint64_t signs = make_signs();
  retinue::ProcessContext ranks = retinue::spawn<leave_grandchild>({.nprocs = 1, .join = false}, signs);
  const int grandchild = wait_for_grandchild(signs);
  while (open("/dev/null", O_RDONLY | O_CLOEXEC) >= 0) continue;
  kill(process_slot(memory(), retinue::kGuardianSlot).pid.load(), SIGKILL);
  try {
    ranks.join();
  } catch (const retinue::SystemError& error) {
    std::printf("%s\n%s\n", error.what(), verdict_on(grandchild));
  }
}

/// The context that could not begin ends with the reason.
void refuse() {
  try {
    retinue::spawn<stay>({.nprocs = 2}, make_signs());
  } catch (const retinue::ProcessException& error) {
    std::printf("%s\n", error.what());
  }
}

struct Hangs {
  ~Hangs() {
    for (;;) pause();
  }
};

void return_and_hang(RankContext& context) {
  if (context.rank() == 1) static const Hangs hangs;
}

void linger() {
  try {
    retinue::spawn<return_and_hang>({.nprocs = 2, .start_method = StartMethod::kSpawn, .exit_grace = milliseconds(1)});
  } catch (const retinue::ProcessException& error) {
    std::printf("%s\n", error.what());
  }
}

/// The guardian dies when it is to take over rank 1; nobody joins, and the program goes on.
void fork_without_guardian() {
  const std::uint64_t signs = make_signs();
  try {
    retinue::spawn<stay>({.nprocs = 3, .start_method = StartMethod::kFork, .join = false}, signs);
    std::printf("started\n");
  } catch (const retinue::Error& error) {
    std::printf("error: %s\n", error.what());
  }
}

void start_another(RankContext&, std::uint64_t signs) {
  retinue::spawn<stay>(
      {.nprocs = 1, .stop = {.terminate_wait = hours(2), .kill_wait = hours(1)}, .exit_grace = hours(4)}, signs);
}

/// The end of the program waits as long as the stop sequences of ranks and their ranks may take, one after the other.
void nest() {
  const std::uint64_t signs = make_signs();
  auto ranks = retinue::spawn<start_another>({.nprocs = 1,
                                              .join = false,
                                              .stop = {.terminate_wait = hours(16), .kill_wait = hours(8)},
                                              .exit_grace = hours(32)},
                                             signs);
  const auto& longest = memory().header().longest_stop_ms;
  while (longest.load() < milliseconds(hours(57)).count()) usleep(1000);
  memory().at<Signs>(signs)->leave.store(1);
  ranks.join();
  std::printf("%s\n", longest.load() >= milliseconds(hours(63)).count() ? "ok" : "too short");
}

void fail_at_length() {
  std::string text;
  for (int line = 0; line < 8; ++line) text += std::string(390, 'x') + "\n";
  throw std::runtime_error(text);
}

/// Standard error is a pipe with room for one page, and nobody reads it.
void tell_nobody() {
  int ends[2];
  if (pipe(ends) != 0) return;
  const int capacity = fcntl(ends[1], F_GETPIPE_SZ);
  const std::string page(4096, '-');
  for (int written = 0; written + 4096 < capacity; written += 4096)
    if (write(ends[1], page.data(), page.size()) < 0) return;
  dup2(ends[1], 2);
  retinue::Process<fail_at_length> process({.name = std::string(5000, 'n')});
  process.start();
  process.join();
  const std::uint64_t signs = make_signs();
  memory().at<Signs>(signs)->leave.store(1);
  retinue::spawn<stay>({.nprocs = 1}, signs);
  std::printf("%s\n", process.failure().find("xxx") != std::string::npos ? "ok" : process.failure().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  alarm(60);  // What hangs is seen before the test's time limit.
  if (mode.find("descriptors") != std::string::npos) {
    const rlimit few{64, 64};
    setrlimit(RLIMIT_NOFILE, &few);
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  retinue::Runtime runtime(argc, argv);
  const std::map<std::string, std::function<void()>> modes = {
      {"guardian without descriptors", sweep_without_descriptors},
      {"program without descriptors", sweep_as_a_program_without_descriptors},
      {"refuse", refuse},
      {"linger", linger},
      {"fork without guardian", fork_without_guardian},
      {"nest", nest},
      {"tell nobody", tell_nobody},
  };
  modes.at(mode)();
}
