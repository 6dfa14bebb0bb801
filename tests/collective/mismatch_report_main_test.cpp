// What the program reads when ranks that it started met in different calls.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"

namespace retinue::test {
namespace {

const CallSite kSite{"/srv/somebody/with/a/long/name/projects/of/hers/training/model/train.cpp", 88};

/// The last rank and the one in the middle are the odd ones.
void meet(RankContext& context) {
  Communicator group(context.world());
  std::vector<float> data(11);
  const bool is_odd = group.rank() == group.size() - 1 || group.rank() == group.size() / 2;
  group.all_reduce(std::span(data).first(is_odd ? 11 : 10), ReduceOp::kSum, kSite);
}

class MismatchReport : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MismatchReport, testing::Values(4, 16, 64));

TEST_P(MismatchReport, NamesTheRanksThatDiffer) {
  const int ranks = GetParam();
  try {
    spawn<meet>({.nprocs = ranks});
    FAIL() << "the calls went together";
  } catch (const ProcessRaisedException& error) {
    const std::string report = error.what();
    EXPECT_NE(report.find(fmt::format("ranks {}, {}: all_reduce(fp32, 11, sum) at .../", ranks / 2, ranks - 1)),
              std::string::npos)
        << report;
    EXPECT_NE(report.find("model/train.cpp:88"), std::string::npos) << report;
    EXPECT_NE(report.find("all_reduce(fp32, 10, sum)"), std::string::npos) << report;
    const std::string first = report.substr(0, report.find('\n'));
    EXPECT_FALSE(first.ends_with("...")) << "it is cut: " << first;
  }
}

/// Each in a call of its own: more text than a report has room for.
void meet_in_as_many_calls(RankContext& context) {
  Communicator group(context.world());
  std::vector<float> data(1000);
  group.all_reduce(std::span(data).first(static_cast<std::size_t>(group.rank())), ReduceOp::kSum, kSite);
}

TEST(MismatchReportOfMany, NamesEachRank) {
  try {
    spawn<meet_in_as_many_calls>({.nprocs = 64});
    FAIL() << "the calls went together";
  } catch (const ProcessRaisedException& error) {
    const std::string report = error.what();
    const std::string first = report.substr(0, report.find('\n'));
    EXPECT_NE(first.find("; ranks 8-63: other calls"), std::string::npos) << first;
  }
}

}  // namespace
}  // namespace retinue::test
