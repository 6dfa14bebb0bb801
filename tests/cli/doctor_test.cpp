#include "doctor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

#include "cli/shell_run.h"

using namespace retinue;

namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

/// A machine on which nothing limits a job.
Machine healthy() {
  Machine machine;
  machine.online_cpus = machine.affinity_cpus = 8;
  machine.ram_bytes = 64 * kGiB;
  machine.available_bytes = 60 * kGiB;
  machine.open_files = machine.open_files_hard = 65536;
  machine.huge_pages = machine.shmem_huge_pages = "advise";
  machine.core_pattern = "core";
  machine.core_bytes = Machine::kUnlimited;
  machine.kernel = "6.1.0";
  machine.calls = {{"pidfd_open", 0}, {"memfd_create", 0}, {"futex_waitv", 0}};
  machine.has_torch = true;
  return machine;
}

Check check_of(const Machine& machine, const std::string& name) {
  const std::vector<Check> checks = check_machine(machine);
  const auto found = std::ranges::find(checks, name, &Check::name);
  return found == checks.end() ? Check{Verdict::kProblem, "no such check: " + name, "", ""} : *found;
}

/// Checks that the ill machine's row says so, with an advice that has `advice` in it, and no other row.
void expect_only(const Machine& machine, const std::string& name, Verdict verdict, const std::string& advice) {
  for (const Check& check : check_machine(machine)) {
    if (check.name != name) {
      EXPECT_EQ(check.verdict, Verdict::kOk) << check.name << ", while " << name << " is looked at";
      continue;
    }
    EXPECT_EQ(check.verdict, verdict) << name;
    EXPECT_NE(check.advice.find(advice), std::string::npos) << check.advice;
  }
  EXPECT_EQ(check_of(machine, name).name, name);
}

TEST(Doctor, FindsNothingOnAHealthyMachine) {
  for (const Check& check : check_machine(healthy())) {
    EXPECT_EQ(check.verdict, Verdict::kOk) << check.name;
    EXPECT_EQ(check.advice, "") << check.name;
    EXPECT_NE(check.found, "") << check.name;
  }
}

TEST(Doctor, NamesEachLimitAndWhatToDo) {
  const auto ill = [](auto change) {
    Machine machine = healthy();
    change(machine);
    return machine;
  };
  using M = Machine;
  expect_only(ill([](M& m) { m.cgroup_cpus = 1.5; }), "cores", Verdict::kLimit, "cpu.max");
  expect_only(ill([](M& m) { m.affinity_cpus = 2; }), "cores", Verdict::kLimit, "taskset");
  expect_only(ill([](M& m) { m.cgroup_memory_bytes = kGiB; }), "memory", Verdict::kLimit, "memory.max");
  expect_only(ill([](M& m) { m.available_bytes = kGiB; }), "memory", Verdict::kLimit, "SharedMemoryExhausted");
  expect_only(ill([](M& m) { m.overcommit = 2; }), "overcommit", Verdict::kLimit, "vm.overcommit_memory=0");
  expect_only(ill([](M& m) { m.open_files = 256; }), "open files", Verdict::kLimit, "ulimit -n 65536");
  expect_only(ill([](M& m) { m.open_files = m.open_files_hard = 32; }), "open files", Verdict::kProblem, "hard limit");
  expect_only(ill([](M& m) { m.processes = 100; }), "processes", Verdict::kLimit, "ulimit -u");
  expect_only(ill([](M& m) { m.cgroup_processes = 100; }), "processes", Verdict::kLimit, "pids.max");
  expect_only(ill([](M& m) { m.shmem_huge_pages = "deny"; }), "huge pages", Verdict::kLimit, "shmem_enabled");
  expect_only(ill([](M& m) { m.shmem_huge_pages = ""; }), "huge pages", Verdict::kLimit, "kernel");
  expect_only(ill([](M& m) { m.ptrace_scope = 1; }), "ptrace", Verdict::kLimit, "--wrap");
  expect_only(ill([](M& m) { m.ram_bytes = m.available_bytes = 0; }), "memory", Verdict::kProblem, "mount -t proc");
  expect_only(ill([](M& m) { m.ptrace_scope = 3; }), "ptrace", Verdict::kLimit, "next boot");
  expect_only(ill([](M& m) { m.core_bytes = 0; }), "core dumps", Verdict::kLimit, "ulimit -c");
  expect_only(ill([](M& m) { m.has_torch = false; }), "LibTorch", Verdict::kLimit, "RETINUE_TORCH=ON");
  expect_only(ill([](M& m) { m.calls["futex_waitv"] = ENOSYS; }), "futex_waitv", Verdict::kProblem, "5.16");
  expect_only(ill([](M& m) { m.calls["pidfd_open"] = EPERM; }), "pidfd_open", Verdict::kProblem, "seccomp");
}

TEST(Doctor, KnowsWhatDoesNotMatter) {
  Machine machine = healthy();
  machine.is_root = true;
  machine.processes = 10;  // Does not bind root.
  machine.ptrace_scope = 1;
  machine.shm_bytes = 0;
  for (const Check& check : check_machine(machine)) EXPECT_EQ(check.verdict, Verdict::kOk) << check.name;
}

TEST(Doctor, LooksAtThisMachine) {
  const Machine machine = Machine::read();
  EXPECT_GE(machine.online_cpus, 1);
  EXPECT_GT(machine.ram_bytes, machine.available_bytes);
  EXPECT_GT(machine.available_bytes, 0u);
  EXPECT_NE(machine.kernel, "");
  for (const auto& [call, error] : machine.calls) EXPECT_EQ(error, 0) << call;
  const auto result = test::shell_run("(ulimit -n 100; $RETINUE doctor)");
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_TRUE(test::contains(result.output, "limit    open files         100 (hard 100)")) << result.output;
}

}  // namespace
