// Ranks of a program that gave up rights after its Runtime, whose guardian still has them.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <tuple>

#include "support/all_rights.h"
#include "support/started_program.h"

namespace {

using retinue::test::StartedProgram;

std::string rights_after(const std::string& gives_up, const std::string& how) {
  StartedProgram program("rights_program", {gives_up, how});
  std::string output = program.read_all();
  program.wait_for_all();
  return output;
}

class Rights : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    if (!retinue::test::has_all_rights()) GTEST_SKIP() << "only root has rights to give up";
  }
};

TEST_P(Rights, AreTheCallersInRanks) {
  const auto& [gives_up, how] = GetParam();
  const std::string output = rights_after(gives_up, how);
  const std::string caller = "caller: ";
  const std::string rank = "\nrank: ";
  const std::size_t end = output.find(rank);
  ASSERT_TRUE(output.starts_with(caller) && end != std::string::npos) << output;
  const std::string callers = output.substr(caller.size(), end - caller.size());
  EXPECT_EQ(output.substr(end + rank.size()), callers + "\n");
  EXPECT_NE(rights_after("nothing", how).find(" policy "), std::string::npos);
  EXPECT_EQ(rights_after("nothing", how).find(callers), std::string::npos) << "nothing was given up";
}

std::string name_of(const testing::TestParamInfo<Rights::ParamType>& info) {
  std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Each, Rights,
                         testing::Combine(testing::Values("user", "effective user", "groups", "capabilities of nobody",
                                                          "bounding set", "securebits", "no_new_privs", "nice",
                                                          "policy"),
                                          testing::Values("forkserver", "spawn", "fork", "program", "pool")),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OfRoot, Rights,
                         testing::Combine(testing::Values("capabilities"),
                                          testing::Values("forkserver", "fork", "pool")),
                         name_of);

/// An execve() gives root all of the bounding set.
TEST(RightsOfRoot, AreNotGivenBackByAnExec) {
  if (!retinue::test::has_all_rights()) GTEST_SKIP() << "only root has rights to give up";
  for (const char* how : {"spawn", "program"}) {
    const std::string output = rights_after("capabilities", how);
    EXPECT_NE(output.find("CapInh: 0000000000000001 CapPrm: 0000000000000021 CapEff: 0000000000000021 "
                          "CapBnd: 0000000000000021 ",
                          output.find("\nrank: ")),
              std::string::npos)
        << output;
  }
}

class OtherPlace : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(OtherPlace, IsRefusedWhereRanksWouldNotBeThere) {
  if (!retinue::test::has_all_rights()) GTEST_SKIP() << "only root may go to such places";
  const auto& [goes_to, how] = GetParam();
  const std::string output = rights_after(goes_to, how);
  const std::size_t error = output.find("error: this process has another ");
  ASSERT_NE(error, std::string::npos) << output;
  const std::string what = goes_to == "network"               ? "network namespace"
                           : goes_to == "hostname and mounts" ? "mount namespace, UTS namespace"
                           : goes_to == "root directory"      ? "root directory"
                                                              : "seccomp filters";
  EXPECT_NE(output.find("another " + what + " than the program had when it made its Runtime"), std::string::npos)
      << output;
  EXPECT_EQ(output.find("rank: "), std::string::npos) << output;
}

INSTANTIATE_TEST_SUITE_P(Each, OtherPlace,
                         testing::Combine(testing::Values("network", "hostname and mounts", "root directory",
                                                          "system calls"),
                                          testing::Values("forkserver", "spawn", "program", "pool")),
                         name_of);

/// Forks of the caller are where it is.
TEST(OtherPlaceOfForks, IsTheCallers) {
  if (!retinue::test::has_all_rights()) GTEST_SKIP() << "only root may go to such places";
  for (const char* place : {"network", "hostname and mounts", "system calls"}) {
    const std::string output = rights_after(place, "fork");
    EXPECT_NE(output.find("rank: "), std::string::npos) << place << ": " << output;
  }
}

}  // namespace
