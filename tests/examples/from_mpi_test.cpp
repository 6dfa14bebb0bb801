#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support/paths.h"
#include "support/started_program.h"

namespace {

TEST(FromMpiExample, PrintsWhatThePageSays) {
  retinue::test::StartedProgram program("retinue", {"run", "-n", "4", RETINUE_BIN_DIR "/from_mpi"});
  std::vector<std::string> lines;
  for (std::string line = program.read_line(); !line.empty(); line = program.read_line()) lines.push_back(line);
  EXPECT_EQ(program.wait_for_all(), 0);
  std::sort(lines.begin(), lines.end());  // Ranks print in any order.
  std::vector<std::string> expected = {"pi is about 3.1415926536\n"};
  for (int rank = 0; rank < 4; ++rank)
    expected.push_back(fmt::format("rank {0} of 4: got {1} from rank {1}\n", rank, (rank + 3) % 4));
  EXPECT_EQ(lines, expected);
}

}  // namespace
