#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "support/started_program.h"

namespace {

std::vector<std::string> lines_of(const std::vector<std::string>& arguments) {
  retinue::test::StartedProgram program("barriers", arguments);
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  return lines;
}

std::ptrdiff_t place_of(const std::vector<std::string>& lines, const std::string& line) {
  const auto found = std::find(lines.begin(), lines.end(), line);
  EXPECT_NE(found, lines.end()) << line;
  return found - lines.begin();
}

TEST(BarriersExample, ABarrierInTwoPlacesIsOne) {
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::string> lines = lines_of({"-n", "3", "meet"});
    ASSERT_EQ(lines.size(), 6u);
    for (const std::string rank : {"1", "2"}) {
      const auto after = place_of(lines, "rank " + rank + ": first after\n");
      EXPECT_GT(after, place_of(lines, "rank 0: second before\n"));
      EXPECT_GT(place_of(lines, "rank 0: second after\n"), place_of(lines, "rank " + rank + ": first before\n"));
    }
  }
}

TEST(BarriersExample, AFirstBarrierTakesAsLongAsItsLastRank) {
  std::vector<std::string> lines = lines_of({"--seconds", "2", "late"});
  ASSERT_EQ(lines.size(), 2u);
  std::sort(lines.begin(), lines.end());
  for (int i = 0; i < 2; ++i) {
    const std::string& line = lines[static_cast<std::size_t>(i)];
    int rank = -1;
    double first = 0;
    double second = 0;
    ASSERT_EQ(std::sscanf(line.c_str(), "rank %d: %lf s, then %lf s", &rank, &first, &second), 3) << line;
    EXPECT_EQ(rank, i);
    EXPECT_GE(first, rank == 1 ? 2.0 : 1.0) << line;  // Rank 0 may have begun later, on a busy machine.
  }
}

TEST(BarriersExample, ARankThatReturnedIsLostAtOnce) {
  const std::vector<std::string> lines = lines_of({"--seconds", "0.5", "lost"});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].find("rank 0: group "), 0u) << lines[0];
  EXPECT_NE(lines[0].find("rank 1 (pid "), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find("finished"), std::string::npos) << lines[0];
}

}  // namespace
