#include "os/machine/memory_kills.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "os/files/kernel_files.h"

namespace retinue {
namespace {

constexpr const char* kCgroupRecord =
    "6,812,5678901234,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,"
    "task_memcg=/job/a,task=a,pid=1,b,pid=4711,uid=0\n SUBSYSTEM=memory\n";
constexpr const char* kMachineRecord =
    "6,813,5678901234,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
    "task_memcg=/job,task=python3,pid=4711,uid=1000\n";

TEST(KernelRecord, NamesTheVictimAndTheCgroupThatWasFull) {
  EXPECT_EQ(full_cgroup_in(kCgroupRecord, 4711, 0), "/job");
  EXPECT_EQ(full_cgroup_in(kMachineRecord, 4711, 0), "");
}

TEST(KernelRecord, OfAnotherProcessOrTimeOrMatterIsNone) {
  EXPECT_EQ(full_cgroup_in(kCgroupRecord, 471, 0), std::nullopt);
  EXPECT_EQ(full_cgroup_in(kCgroupRecord, 1, 0), std::nullopt) << "that is part of a process's name";
  EXPECT_NE(full_cgroup_in(kMachineRecord, 4711, 5'678'900'000'000), std::nullopt);
  EXPECT_EQ(full_cgroup_in(kMachineRecord, 4711, 5'690'000'000'000), std::nullopt);
  EXPECT_EQ(full_cgroup_in("6,1,2,-;usb 1-1: new device, pid=4711,", 4711, 0), std::nullopt);
  for (const char* broken : {"", ";", "6;oom-kill:", "6,1,x,-;oom-kill:constraint=,pid=", ",,,"})
    EXPECT_EQ(full_cgroup_in(broken, 4711, 0), std::nullopt) << broken;
}

TEST(CounterIn, TakesWholeKeysOnly) {
  const std::string events = "low 0\nhigh 0\nmax 17\noom 3\noom_kill 2\noom_group_kill 0\n";
  EXPECT_EQ(counter_in(events, "oom"), 3u);
  EXPECT_EQ(counter_in(events, "oom_kill"), 2u);
  EXPECT_EQ(counter_in(events, "oom_"), std::nullopt);
  EXPECT_EQ(counter_in("oom_kill_disable 0\nunder_oom 0\noom_kill 5", "oom_kill"), 5u);
  EXPECT_EQ(counter_in("oom_kill", "oom_kill"), std::nullopt);
  EXPECT_EQ(counter_in("oom_kill x\n", "oom_kill"), std::nullopt);
}

TEST(Cgroups, AreFoundInBothVersionsInnermostFirst) {
  const auto old = cgroups_in("5:cpu,memory:/a/b\n4:cpuset:/c\n", "memory");
  ASSERT_EQ(old.size(), 6u);
  EXPECT_EQ(old[0].folder, "/sys/fs/cgroup/memory/a/b");
  EXPECT_EQ(old[1].folder, "/sys/fs/cgroup/memory/a");
  EXPECT_EQ(old[2].folder, "/sys/fs/cgroup/memory");
  EXPECT_EQ(old[3].folder, "/sys/fs/cgroup/cpu,memory/a/b");
  EXPECT_EQ(old[0].version, Cgroup::Version::k1);
  const auto unified = cgroups_in("0::/user.slice\n", "memory");
  ASSERT_EQ(unified.size(), 4u);
  EXPECT_EQ(unified[0].folder, "/sys/fs/cgroup/user.slice");
  EXPECT_EQ(unified[1].folder, "/sys/fs/cgroup");
  EXPECT_EQ(unified[2].folder, "/sys/fs/cgroup/unified/user.slice");
  EXPECT_EQ(unified[0].version, Cgroup::Version::k2);
  EXPECT_EQ(cgroups_in("0::/", "memory").front().folder, "/sys/fs/cgroup");
  EXPECT_EQ(cgroups_in("7:cpu:/a\n5:memory:/b\n", "cpu").front().folder, "/sys/fs/cgroup/cpu/a");
  EXPECT_TRUE(cgroups_in("", "memory").empty());
  EXPECT_TRUE(cgroups_in("garbage\n1:memory", "memory").empty());
}

TEST(MemoryKills, SayNothingOfAProcessThatTheKernelDidNotKill) {
  MemoryKills kills;
  EXPECT_FALSE(kills.explain(999'999'999, 0).has_value());
}

}  // namespace
}  // namespace retinue
