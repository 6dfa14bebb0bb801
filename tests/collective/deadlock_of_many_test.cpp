// A deadlock of more ranks than its text describes one by one.
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>

#include "collective/mismatch_text.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

TEST(DeadlockOfMany, NamesAll) {
  run_ranks(20, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = std::chrono::seconds(60)});
    int x = 0;
    std::string text;
    try {
      communicator.recv(std::span(&x, 1), (group.rank + 1) % 20, 5);
      ADD_FAILURE() << "the call ended";
    } catch (const CollectiveMismatch& error) {
      text = error.what();
    }
    const std::string before = "; and the waits of ranks ";
    const std::size_t others = text.find(before);
    ASSERT_NE(others, std::string::npos) << text;
    const std::string rest = text.substr(others + before.size());
    for (int rank = 0; rank < 20; ++rank) {
      const bool is_told = text.find(" rank " + std::to_string(rank) + " waits to receive") != std::string::npos;
      EXPECT_NE(is_told, names_rank(rest.substr(0, rest.find('.')), rank)) << rank << " in: " << text;
    }
  });
}

}  // namespace
}  // namespace retinue::test
