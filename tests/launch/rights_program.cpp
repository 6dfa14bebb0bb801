// Gives up rights after its Runtime, and says what it may do then and what its ranks may. Arguments: what to give up,
// how to start ranks. With `show` alone it only says what it may do: as a program that is executed.
#include <grp.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

#include "retinue/launch/pool.h"
#include "retinue/launch/spawn.h"

// The leak check needs rights that are given up, and so does reading ASAN_OPTIONS from /proc, as the sanitizer does.
extern "C" const char* __asan_default_options() {  // NOLINT(bugprone-reserved-identifier): the sanitizer's name.
  return "detect_leaks=0";
}

namespace {

constexpr unsigned kNobody = 65534;

std::string rights() {
  std::string text;
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);)
    for (const char* name :
         {"Uid:", "Gid:", "Groups:", "CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:", "NoNewPrivs:", "Seccomp"})
      if (line.starts_with(name)) text += line + " ";
  for (char& c : text)
    if (c == '\t') c = ' ';
  return text + "securebits " + std::to_string(prctl(PR_GET_SECUREBITS)) + " dumpable " +
         std::to_string(prctl(PR_GET_DUMPABLE)) + " nice " + std::to_string(getpriority(PRIO_PROCESS, 0)) + " policy " +
         std::to_string(sched_getscheduler(0));
}

void must(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

void set_capabilities(std::uint32_t permitted, std::uint32_t effective, std::uint32_t inheritable) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{effective, permitted, inheritable}, {}};
  must(syscall(SYS_capset, &header, data) == 0, "capset");
}

void become_nobody() {
  must(setgroups(0, nullptr) == 0 && setgid(kNobody) == 0 && setuid(kNobody) == 0, "becoming nobody");
}

void forbid_a_call() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_acct, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{4, filter};
  must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0,
       "installing a filter");
}

void give_up(const std::string& what) {
  constexpr std::uint32_t kChown = 1u << CAP_CHOWN;
  if (what == "user") become_nobody();
  if (what == "effective user") must(seteuid(kNobody) == 0, "seteuid");
  if (what == "groups") {
    const gid_t groups[] = {7, 4711};
    must(setgroups(2, groups) == 0 && setegid(42) == 0, "setgroups");
  }
  if (what == "capabilities") set_capabilities(kChown | 1u << CAP_KILL, kChown, kChown);
  if (what == "capabilities of nobody") {
    prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
    become_nobody();
    set_capabilities(kChown, kChown, kChown);
    must(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0) == 0, "raising an ambient capability");
  }
  if (what == "bounding set") must(prctl(PR_CAPBSET_DROP, CAP_AUDIT_WRITE, 0, 0, 0) == 0, "PR_CAPBSET_DROP");
  if (what == "securebits")
    must(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED, 0, 0, 0) == 0, "PR_SET_SECUREBITS");
  if (what == "no_new_privs") must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
  if (what == "nice") must(setpriority(PRIO_PROCESS, 0, 7) == 0, "setpriority");
  if (what == "policy") {
    const sched_param none{};
    must(sched_setscheduler(0, SCHED_BATCH, &none) == 0, "sched_setscheduler");
  }
  if (what == "network") must(unshare(CLONE_NEWNET) == 0, "unshare");
  if (what == "hostname and mounts") must(unshare(CLONE_NEWUTS | CLONE_NEWNS) == 0, "unshare");
  if (what == "root directory") must(chroot("/usr") == 0 && chdir("/") == 0, "chroot");
  if (what == "system calls") forbid_a_call();
}

std::string rights_of_rank(retinue::RankContext&) {
  return rights();
}
std::string rights_of_task(int) {
  return rights();
}

/// What a program executed by this process says: its rights follow from ours by the kernel's rules alone.
void show_in_executed_child(const char* name) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "rights_program", "show", name, nullptr);
    _exit(1);
  }
  waitpid(pid, nullptr, 0);
}

void start(const std::string& how) {
  const auto show = [](const std::string& text) { std::printf("rank: %s\n", text.c_str()); };
  if (how == "program") {
    show_in_executed_child("caller");
    retinue::start_processes({}, {retinue::Program{"/proc/self/exe", {"show", "rank"}}}).join();
    return;
  }
  if (how == "spawn")
    show_in_executed_child("caller");
  else
    std::printf("caller: %s\n", rights().c_str());
  if (how == "pool") {
    retinue::Pool pool({.processes = 1});
    return show(pool.apply<rights_of_task>(0));
  }
  const retinue::StartMethod method = how == "spawn"  ? retinue::StartMethod::kSpawn
                                      : how == "fork" ? retinue::StartMethod::kFork
                                                      : retinue::StartMethod::kForkserver;
  const retinue::RunResult result = retinue::spawn<rights_of_rank>({.start_method = method, .join = false}).wait();
  if (!result.ok()) throw std::runtime_error(result.failures()[0].type + ": " + result.failures()[0].message);
  show(result.value<std::string>(0));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::string(argv[1]) == "show") {
    std::printf("%s: %s\n", argv[2], rights().c_str());
    return 0;
  }
  retinue::Runtime runtime(argc, argv);
  give_up(argv[1]);
  start(argv[2]);
} catch (const std::exception& error) {
  std::printf("error: %s\n", error.what());
  return 1;
}
