#include "os/machine/cpus.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "os/machine/cgroups.h"
#include "retinue/base/error.h"
#include "support/fake_cpus.h"

namespace {

using retinue::Cpu;

TEST(Cpus, ListsAreReadAndWritten) {
  EXPECT_EQ(retinue::parse_cpu_list("0-3,8"), std::vector<int>({0, 1, 2, 3, 8}));
  EXPECT_EQ(retinue::parse_cpu_list("5"), std::vector<int>({5}));
  for (const std::string wrong : {"", "a", "1-", "-1", "3-1", "1,,2", "0-999999999"})
    EXPECT_TRUE(retinue::parse_cpu_list(wrong).empty()) << wrong;
  EXPECT_EQ(retinue::cpu_list_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  EXPECT_EQ(retinue::cpu_list_text({}), "");
}

TEST(Cpus, CountIsWhatTheCgroupLeaves) {
  EXPECT_EQ(retinue::cpus_of_cpu_max("150000 100000"), 1.5);
  for (const std::string none : {"max 100000", "-1 100000", "", "100000", "1 0"})
    EXPECT_FALSE(retinue::cpus_of_cpu_max(none)) << none;
  EXPECT_EQ(retinue::usable_cpus(8, 1.5), 2);
  EXPECT_EQ(retinue::usable_cpus(8, 0.1), 1);
  EXPECT_EQ(retinue::usable_cpus(2, 16.0), 2);
  EXPECT_EQ(retinue::usable_cpus(4, std::nullopt), 4);
}

TEST(Cpus, AffinityOfThisThreadIsReadAndSet) {
  const std::vector<int> before = retinue::allowed_cpus();
  ASSERT_FALSE(before.empty());
  std::thread other([&] {
    retinue::set_allowed_cpus({before.back()});
    EXPECT_EQ(retinue::allowed_cpus(), std::vector<int>({before.back()}));
  });
  other.join();
  EXPECT_EQ(retinue::allowed_cpus(), before);
  try {
    retinue::set_allowed_cpus({60000, 60001});
    ADD_FAILURE() << "bound to CPUs that no machine has";
  } catch (const retinue::SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("60000-60001"), std::string::npos) << error.what();
  }
}

TEST(Cpus, MemoryIsBoundToANode) {
  const int node = retinue::allowed_memory_nodes().back();
  std::thread other([node] {  // Policies are a thread's own.
    try {
      retinue::bind_memory(node);
    } catch (const retinue::SystemError& error) {
      EXPECT_NE(std::string(error.what()).find("to node " + std::to_string(node)), std::string::npos) << error.what();
      EXPECT_EQ(error.errno_value(), EPERM) << "only a container's rule may forbid it";
      return;
    }
    int mode = 0;
    unsigned long mask[16] = {};
    ASSERT_EQ(syscall(SYS_get_mempolicy, &mode, mask, 8 * sizeof mask, nullptr, 0), 0);
    EXPECT_EQ(mode, 2);  // MPOL_BIND
    constexpr int kBits = 8 * sizeof(unsigned long);
    EXPECT_EQ(mask[node / kBits], 1ul << (node % kBits));
  });
  other.join();
  std::thread([] { EXPECT_THROW(retinue::bind_memory(900), retinue::SystemError); }).join();
}

TEST(Cpus, TopologyComesFromTheKernelsFolder) {
  const retinue::test::FakeCpus cpus("cpus");
  cpus.add_core(0, "0,4", 0);
  cpus.add_core(4, "0,4", 0);
  cpus.add_core(5, "1,5", 1);
  const std::vector<Cpu> expected = {{0, 0, 0}, {4, 0, 0}, {5, 1, 1}, {9, 9, 0}};
  EXPECT_EQ(retinue::cpu_topology({0, 4, 5, 9}, cpus.folder()), expected);

  cpus.add_node(5, 3);
  cpus.add_cache(5, 0, 1, "Data", "5");
  cpus.add_cache(5, 3, 3, "Unified", "1,5-7");
  cpus.add_cache(5, 4, 4, "Instruction", "0-7");
  std::vector<Cpu> topology = expected;
  retinue::read_nodes_and_caches(topology, cpus.folder());
  EXPECT_EQ(topology, std::vector<Cpu>({{0, 0, 0}, {4, 0, 0}, {5, 1, 1, 3, 1}, {9, 9, 0}}));
}

TEST(Cpus, HaveACacheAndANodeInCommonOrNot) {
  const retinue::test::FourNodes machine;
  const auto place = [&](const std::vector<int>& cpus) { return retinue::common_place(cpus, machine.folder()); };
  EXPECT_EQ(place({9}).cache, 8);
  EXPECT_EQ(place({9}).node, 1);
  EXPECT_EQ(place({8, 11, 15}).cache, 8);
  EXPECT_EQ(place({7, 8}).cache, std::nullopt);
  EXPECT_EQ(place({7, 8}).node, std::nullopt);
  EXPECT_EQ(place({}).cache, std::nullopt);
  // A node of several caches.
  machine.add_node(40, 1);
  machine.add_cache(40, 3, 3, "Unified", "40");
  EXPECT_EQ(place({9, 40}).cache, std::nullopt);
  EXPECT_EQ(place({9, 40}).node, 1);
  // What the kernel hides.
  EXPECT_EQ(place({99}).cache, std::nullopt);
  EXPECT_EQ(place({99}).node, std::nullopt);
  EXPECT_EQ(place({9, 99}).node, std::nullopt);
}

}  // namespace
