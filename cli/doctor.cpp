#include "doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "os/machine/cpus.h"

namespace retinue {
namespace {

std::string size_text(std::uint64_t bytes) {
  constexpr double kGiB = 1 << 30;
  constexpr double kMiB = 1 << 20;
  const auto value = static_cast<double>(bytes);
  return value >= kGiB ? fmt::format("{:.1f} GiB", value / kGiB) : fmt::format("{:.0f} MiB", value / kMiB);
}

std::string limit_text(std::uint64_t limit) {
  return limit == Machine::kUnlimited ? "unlimited" : std::to_string(limit);
}

Check check_cores(const Machine& machine) {
  const int usable = usable_cpus(machine.affinity_cpus, machine.cgroup_cpus);
  const std::string quota =
      machine.cgroup_cpus ? fmt::format(", cgroup allows {:.2g} CPUs of time", *machine.cgroup_cpus) : "";
  Check check{Verdict::kOk, "cores",
              fmt::format("{} usable of {} (affinity {}{})", usable, machine.online_cpus, machine.affinity_cpus, quota),
              ""};
  if (usable >= machine.online_cpus) return check;
  check.verdict = Verdict::kLimit;
  check.advice =
      machine.cgroup_cpus && usable < machine.affinity_cpus
          ? "raise cpu.max of the cgroup (docker --cpus, a pod's limits.cpu), or start no more ranks than that"
          : "widen the affinity (taskset, cpuset.cpus, docker --cpuset-cpus), or start no more ranks than that";
  return check;
}

Check check_memory(const Machine& machine) {
  if (machine.ram_bytes == 0)
    return {Verdict::kProblem, "memory", "unknown: /proc/meminfo can't be read",
            "Retinue needs /proc, which isn't mounted here: mount -t proc proc /proc"};
  const std::uint64_t limit = machine.cgroup_memory_bytes.value_or(Machine::kUnlimited);
  Check check{Verdict::kOk, "memory",
              fmt::format("{} available of {}", size_text(machine.available_bytes), size_text(machine.ram_bytes)), ""};
  if (limit < machine.ram_bytes) {
    check.found += fmt::format(", cgroup allows {}", size_text(limit));
    check.verdict = Verdict::kLimit;
    check.advice =
        "above its limit the cgroup kills processes instead of failing an allocation: raise memory.max (docker "
        "--memory), or use less memory";
  } else if (machine.available_bytes < machine.ram_bytes / 10) {
    check.verdict = Verdict::kLimit;
    check.advice =
        "less than a tenth is available: end other programs that use memory, or expect SharedMemoryExhausted";
  }
  return check;
}

Check check_overcommit(const Machine& machine) {
  Check check{Verdict::kOk, "overcommit", fmt::format("vm.overcommit_memory = {}", machine.overcommit), ""};
  if (machine.overcommit != 2) return check;
  check.verdict = Verdict::kLimit;
  check.advice =
      "strict accounting also counts memory that forks share: sysctl vm.overcommit_memory=0, or start fewer ranks";
  return check;
}

Check check_open_files(const Machine& machine) {
  Check check{Verdict::kOk, "open files",
              fmt::format("{} (hard {})", limit_text(machine.open_files), limit_text(machine.open_files_hard)), ""};
  constexpr std::uint64_t kNeeded = 64;
  constexpr std::uint64_t kUsual = 1024;
  if (machine.open_files < kNeeded) check.verdict = Verdict::kProblem;
  if (machine.open_files >= kNeeded && machine.open_files < kUsual) check.verdict = Verdict::kLimit;
  if (check.verdict == Verdict::kOk) return check;
  check.advice = machine.open_files_hard > machine.open_files
                     ? fmt::format("ulimit -n {}", limit_text(std::min<std::uint64_t>(machine.open_files_hard, 65536)))
                     : "raise the hard limit (limits.conf, LimitNOFILE=, docker --ulimit nofile=65536)";
  check.advice += "; log files need two descriptors per rank";
  return check;
}

Check check_processes(const Machine& machine) {
  const std::uint64_t user = machine.is_root ? Machine::kUnlimited : machine.processes;
  const std::uint64_t cgroup = machine.cgroup_processes.value_or(Machine::kUnlimited);
  Check check{Verdict::kOk, "processes", fmt::format("user {}, cgroup {}", limit_text(user), limit_text(cgroup)), ""};
  constexpr std::uint64_t kFew = 1024;
  if (std::min(user, cgroup) >= kFew) return check;
  check.verdict = Verdict::kLimit;
  check.advice = cgroup < user ? "threads count too: raise pids.max (docker --pids-limit, TasksMax=)"
                               : "threads count too: raise ulimit -u";
  return check;
}

Check check_huge_pages(const Machine& machine) {
  if (machine.shmem_huge_pages.empty())
    return {Verdict::kLimit, "huge pages", "the kernel has no transparent huge pages",
            "job memory uses small pages, so first accesses and large reductions are slower; use a kernel with "
            "CONFIG_TRANSPARENT_HUGEPAGE"};
  Check check{Verdict::kOk, "huge pages",
              fmt::format("enabled {}, shmem {}", machine.huge_pages, machine.shmem_huge_pages), ""};
  if (machine.shmem_huge_pages == "deny") {
    check.verdict = Verdict::kLimit;
    check.advice = "job memory uses small pages: echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  return check;
}

Check check_ptrace(const Machine& machine) {
  if (!machine.ptrace_scope) return {Verdict::kOk, "ptrace", "not restricted by Yama", ""};
  Check check{Verdict::kOk, "ptrace", fmt::format("kernel.yama.ptrace_scope = {}", *machine.ptrace_scope), ""};
  if (*machine.ptrace_scope == 0 || (machine.is_root && *machine.ptrace_scope < 3)) return check;
  check.verdict = Verdict::kLimit;
  check.advice = *machine.ptrace_scope >= 3
                     ? "no debugger can attach until the next boot; start ranks under a debugger: --wrap 'gdb --args'"
                     : "gdb -p cannot attach to a rank: sysctl kernel.yama.ptrace_scope=0, or start ranks under gdb: "
                       "--wrap 'gdb --args'";
  return check;
}

Check check_cores_dumped(const Machine& machine) {
  const bool is_off = machine.core_bytes == 0;
  Check check{Verdict::kOk, "core dumps",
              fmt::format("{}, pattern '{}'", is_off ? "off (ulimit -c 0)" : "on", machine.core_pattern), ""};
  const bool is_piped = machine.core_pattern.starts_with("|");
  if (!is_off || is_piped) return check;
  check.verdict = Verdict::kLimit;
  check.advice = "crashes are reported with their stacks anyway; for core files: ulimit -c unlimited";
  return check;
}

Check check_shm(const Machine& machine) {
  return {Verdict::kOk, "/dev/shm",
          fmt::format("{}; not important: job memory is not in /dev/shm", size_text(machine.shm_bytes)), ""};
}

/// The kernel that first had a call.
const char* first_kernel_of(const std::string& call) {
  if (call == "pidfd_open") return "5.3";
  return call == "futex_waitv" ? "5.16" : "3.17";
}

Check check_call(const Machine& machine, const std::string& call, int error) {
  if (error == 0) return {Verdict::kOk, call, fmt::format("available (Linux {})", machine.kernel), ""};
  Check check{Verdict::kProblem, call, fmt::format("errno {} on Linux {}", error, machine.kernel), ""};
  // Filters answer EPERM, and some ENOSYS, as a kernel would that never had the call.
  check.advice = error == EPERM || machine.seccomp != 0
                     ? fmt::format(
                           "a seccomp filter forbids it, or the kernel is older than {}: update the container runtime, "
                           "or use docker --security-opt seccomp=unconfined",
                           first_kernel_of(call))
                     : fmt::format("Retinue needs it: use Linux {} or later", first_kernel_of(call));
  return check;
}

Check check_seccomp(const Machine& machine) {
  return {Verdict::kOk, "seccomp",
          machine.seccomp == 0 ? "no filter" : "a filter is active; the system calls below show what it forbids", ""};
}

std::vector<Check> check_engines(const Machine& machine) {
  std::vector<Check> checks;
  if (machine.has_torch) {
    checks.push_back({Verdict::kOk, "LibTorch", "in this build", ""});
  } else {
    checks.push_back({Verdict::kLimit, "LibTorch", "not in this build",
                      "programs that use retinue::core, and programs without Retinue, run; for retinue::torch, build "
                      "with RETINUE_TORCH=ON"});
  }
  for (const auto& [name, path] : machine.libraries)
    checks.push_back({Verdict::kOk, name, path.empty() ? "not found; not needed on one machine" : path, ""});
  checks.push_back({Verdict::kOk, "GPUs", fmt::format("{}", machine.gpus.size()), ""});
  return checks;
}

const char* word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return "ok";
    case Verdict::kLimit:
      return "limit";
    case Verdict::kProblem:
      return "PROBLEM";
  }
  return "";
}

}  // namespace

std::vector<Check> check_machine(const Machine& machine) {
  std::vector<Check> checks = {check_cores(machine),      check_memory(machine),    check_overcommit(machine),
                               check_open_files(machine), check_processes(machine), check_huge_pages(machine),
                               check_shm(machine),        check_ptrace(machine),    check_cores_dumped(machine),
                               check_seccomp(machine)};
  for (const auto& [call, error] : machine.calls) checks.push_back(check_call(machine, call, error));
  for (Check& engine : check_engines(machine)) checks.push_back(std::move(engine));
  return checks;
}

std::string doctor_text(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks) {
    text += fmt::format("{:<8} {:<18} {}\n", word_of(check.verdict), check.name, check.found);
    if (!check.advice.empty()) text += fmt::format("{:<27} -> {}\n", "", check.advice);
  }
  return text;
}

int doctor_command() {
  const std::vector<Check> checks = check_machine(Machine::read());
  std::fputs(doctor_text(checks).c_str(), stdout);
  const auto is_problem = [](const Check& check) { return check.verdict == Verdict::kProblem; };
  return std::ranges::any_of(checks, is_problem) ? 1 : 0;
}

}  // namespace retinue
