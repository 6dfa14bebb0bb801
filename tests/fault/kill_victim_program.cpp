// A job in which one process dies as the kill matrix says: kill_victim_program ROLE ACTION PHASE METHOD, or the same as
// a rank of `retinue run` with the METHOD "run". Rank 0 directs: when all are where they should be, it has the victim
// die. It has a grandchild in a session of its own, and one that was forked twice. Prints what became of it.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>

#include "ipc/memory/context_table.h"
#include "launch/runtime/runtime_impl.h"
#include "os/sockets/control_socket.h"
#include "os/testing/fault_point.h"
#include "process/guardian/start_request.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"

namespace {

using retinue::Communicator;
using retinue::RankContext;

struct Scene {
  std::string role;
  std::string action;
  std::string phase;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(role, action, phase);
  }
  bool is_before_functions() const { return phase == "starting" || phase == "before the first line"; }
  bool is_about_grandchild() const { return role == "grandchild" || role == "daemon"; }
};

/// The letter of /proc/PID/stat; Z where the process is gone altogether.
char state_of(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos ? 'Z' : text[name_end + 2];
}

void wait_for_state(pid_t pid, char state) {
  for (char now = state_of(pid); now != state && now != 'Z'; now = state_of(pid)) usleep(1000);
}

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

/// Makes a grandchild that dies as told: at once, when the rank is blocked, or when the rank is gone. Returns its pid.
pid_t make_mortal_grandchild(const Scene& scene) {
  const pid_t rank = getpid();
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    if (scene.role == "daemon" && fork() != 0) _exit(0);
    const pid_t own = getpid();
    if (write(ends[1], &own, sizeof own) != sizeof own) _exit(8);
    if (scene.phase == "in a collective") wait_for_state(rank, 'S');
    if (scene.phase == "shutting down") wait_for_state(rank, 'Z');
    retinue::end_by_fault(scene.action.c_str());
    _exit(9);
  }
  if (scene.role == "daemon") waitpid(child, nullptr, 0);
  pid_t mortal = 0;
  if (read(ends[0], &mortal, sizeof mortal) != sizeof mortal) throw std::runtime_error("no grandchild");
  close(ends[0]);
  close(ends[1]);
  return mortal;
}

/// Dies when the main thread is blocked, in the operation that it began.
void die_while_blocked(const std::string& action) {
  std::thread([action] {
    wait_for_state(getpid(), 'S');
    retinue::end_by_fault(action.c_str());
  }).detach();
}

const char* program_action = "";

void die_as_program(int) {
  retinue::end_by_fault(program_action);
}

/// Of the program by a signal, of the guardian by a request that it dies of.
void end_victim(const RankContext& context, const Scene& scene) {
  const retinue::JobMemory& memory = *context.memory();
  if (scene.role == "program") kill(process_slot(memory, retinue::kProgramSlot).pid.load(), SIGUSR1);
  if (scene.role == "guardian") {
    const std::uint32_t own = process_slot(memory, memory.own_slot()).context;
    const retinue::ControlMessage message{retinue::ControlKind::kSignal, own, retinue::kAllRanks, SIGCONT};
    send_message(retinue::Runtime::current().impl().control_send.get(), &message, sizeof message);
  }
}

pid_t pid_of(const RankContext& context, int rank) {
  const retinue::JobMemory& memory = *context.memory();
  const auto& record = context_record(memory, process_slot(memory, memory.own_slot()).context);
  return process_slot(memory, record.slots[rank]).pid.load();
}

/// Ranks that only wait for the victim's end.
[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

void act_in_collective(const RankContext& context, const Scene& scene, Communicator& group, pid_t mortal) {
  if (context.rank() == 1 && scene.role == "rank") die_while_blocked(scene.action);
  if (context.rank() == 0) {
    wait_for_state(pid_of(context, 1), scene.role == "rank" ? 'Z' : 'S');
    wait_for_state(pid_of(context, 2), 'S');
    end_victim(context, scene);
    if (scene.is_about_grandchild()) wait_for_state(mortal, 'Z');
    // Who exits with code 0 ends nobody: its peers notice when they need it.
    const bool goes_on = scene.is_about_grandchild() || (scene.role == "rank" && scene.action == "exit");
    if (!goes_on) wait_for_the_end();
  }
  group.barrier();
  if (scene.role == "rank") group.barrier();  // The first may pass: the victim had arrived.
}

void act(RankContext& context, const Scene& scene) {
  if (context.rank() == 0) {
    leave_grandchild(false);
    leave_grandchild(true);
  }
  if (scene.is_before_functions()) {
    if (scene.role == "rank") return;
    wait_for_the_end();
  }
  if (scene.role == "helper") throw std::runtime_error("so that the helper is needed");
  Communicator group(context.world());
  double mortal = scene.is_about_grandchild() && context.rank() == 1 ? make_mortal_grandchild(scene) : 0;
  group.all_reduce(std::span(&mortal, 1));
  if (scene.phase == "in a collective") return act_in_collective(context, scene, group, static_cast<pid_t>(mortal));
  if (scene.phase == "shutting down") return;
  if (scene.is_about_grandchild()) return wait_for_state(static_cast<pid_t>(mortal), 'Z');
  if (scene.role == "rank" && context.rank() == 1) retinue::end_by_fault(scene.action.c_str());
  if (scene.role == "rank" && scene.action == "exit") return;
  if (context.rank() == 0) end_victim(context, scene);
  wait_for_the_end();
}

retinue::StartMethod method_of(const std::string& name) {
  if (name == "spawn") return retinue::StartMethod::kSpawn;
  return name == "fork" ? retinue::StartMethod::kFork : retinue::StartMethod::kForkserver;
}

int run_job(const Scene& scene, const std::string& method) {
  try {
    retinue::spawn<act>(
        {.nprocs = 3, .start_method = method_of(method), .stop = {.terminate_wait = std::chrono::seconds(5)}}, scene);
    std::printf("ok\n");
    return 0;
  } catch (const std::exception& error) {
    std::printf("error: %s\n", error.what());
    return 3;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const Scene scene{argv[1], argv[2], argv[3]};
  const std::string method = argv[4];
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  program_action = argv[2];
  signal(SIGUSR1, die_as_program);
  int code = 0;
  try {
    retinue::Runtime runtime(argc, argv);
    std::printf("job memory %llu\n", static_cast<unsigned long long>(runtime.memory()->header().inode));
    if (method == "run") {
      retinue::RankContext context = runtime.rank_context();
      act(context, scene);
      return 0;
    }
    code = run_job(scene, method);
  } catch (const retinue::SystemError& error) {
    std::printf("error: %s\n", error.what());
    return 4;
  }
  if (waitpid(-1, nullptr, __WALL | WNOHANG) != -1 || errno != ECHILD) std::printf("a child of the program is left\n");
  return code;
}
