// A job in which one process dies as the kill matrix says: kill_victim_program ROLE ACTION PHASE. In all of it rank 0
// has a grandchild in a session of its own, and one that was forked twice. Prints what became of it.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "os/fault_point.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"

namespace {

using Counter = std::atomic<int>;

struct Scene {
  std::string role;
  std::string action;
  std::string phase;
  std::uint64_t running = 0;  ///< Offset of the count of ranks that run.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(role, action, phase, running);
  }
};

void leave_grandchild(bool twice) {
  const pid_t child = fork();
  if (child != 0) {
    if (twice) waitpid(child, nullptr, 0);
    return;
  }
  setsid();
  if (twice && fork() != 0) _exit(0);
  for (;;) pause();
}

/// Makes a grandchild that dies as told, after the rank saw it alive.
void lose_grandchild(const Scene& scene) {
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (scene.role == "daemon" && fork() != 0) _exit(0);
    retinue::end_by_fault(scene.action.c_str());
    _exit(9);
  }
  waitpid(child, nullptr, 0);
}

bool main_thread_sleeps() {
  std::ifstream stat("/proc/self/stat");
  std::string pid;
  std::string name;
  std::string state;
  stat >> pid >> name >> state;
  return state == "S";
}

/// Dies when the main thread is blocked, in the operation that it began.
void die_while_blocked(const std::string& action) {
  std::thread([action] {
    while (!main_thread_sleeps()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    retinue::end_by_fault(action.c_str());
  }).detach();
}

void act(retinue::RankContext& context, const Scene& scene) {
  const bool is_victim = context.rank() == 1;
  const std::string& role = scene.role;
  if (context.rank() == 0) {
    leave_grandchild(false);
    leave_grandchild(true);
  }
  context.memory()->at<Counter>(scene.running)->fetch_add(1);
  if (is_victim && (role == "grandchild" || role == "daemon")) lose_grandchild(scene);
  if (role == "clerk") throw std::runtime_error("so that the clerk is needed");
  if (is_victim && role == "rank" && scene.phase == "running") retinue::end_by_fault(scene.action.c_str());
  const bool nobody_fails = role == "grandchild" || role == "daemon" ||
                            (role == "rank" && scene.action == "exit" && scene.phase != "in a collective");
  const bool others_return = nobody_fails || scene.phase == "shutting down";
  if (others_return) return;
  if (scene.phase != "in a collective") {
    for (;;) pause();
  }
  retinue::Communicator group(context.world());
  if (is_victim && role == "rank") die_while_blocked(scene.action);
  if (context.rank() == 0) {
    // So that the others' barrier lasts. Who exits with code 0 ends nobody: its peers notice when they need it.
    const bool ends = role == "rank" && scene.action == "exit";
    while (!ends) pause();
    return;
  }
  group.barrier();
}

void wait_for_ranks(const Scene& scene, int ranks) {
  const auto* running = retinue::Runtime::current().memory()->at<Counter>(scene.running);
  while (running->load() < ranks) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  Scene scene{argv[1], argv[2], argv[3]};
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  retinue::Runtime runtime(argc, argv);
  const retinue::BlockHandle block = runtime.memory()->allocate(64);
  scene.running = block.offset;
  new (runtime.memory()->at<Counter>(block.offset)) Counter(0);
  constexpr int kRanks = 3;
  try {
    const retinue::StartMethod method =
        argc > 4 && std::string(argv[4]) == "fork" ? retinue::StartMethod::kFork : retinue::StartMethod::kForkserver;
    retinue::ProcessContext ranks = retinue::spawn<act>(
        {.nprocs = kRanks, .start_method = method, .join = false, .stop = {.terminate_wait = std::chrono::seconds(5)}},
        scene);
    const bool all_run = scene.phase != "starting" && scene.phase != "before the first line";
    if (all_run && scene.role == "program" && scene.phase != "shutting down") {
      wait_for_ranks(scene, kRanks);
      if (scene.phase == "in a collective") die_while_blocked(scene.action);
      if (scene.phase == "running") retinue::end_by_fault(scene.action.c_str());
    }
    if (all_run && scene.role == "guardian" && scene.phase != "shutting down") {
      wait_for_ranks(scene, kRanks);
      ranks.signal(SIGCONT);  // The guardian dies of it.
    }
    ranks.join();
    std::printf("ok\n");
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}
