// What ranks whose last calls weren't the same are told when nobody waited for another in them.
#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "retinue/collective/communicator.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"

namespace retinue::test {
namespace {

/// What ranks say that each make three barriers, do `body`, and leave.
std::string said_by(int size, const std::function<void(Communicator&)>& body) {
  const CapturedStderr captured;
  run_ranks(size, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group);
    for (int i = 0; i < 3; ++i) communicator.barrier();
    body(communicator);
  });
  return captured.text();
}

TEST(UnmatchedCalls, OfRanksThatEachTakeThemselvesForTheRoot) {
  for (int round = 0; round < 20; ++round) {
    const std::string text = said_by(3, [](Communicator& ranks) {
      int value = 1;
      ranks.broadcast(std::span(&value, 1), ranks.rank());
    });
    EXPECT_EQ(count_of(text, "retinue: "), 1) << text;
    EXPECT_EQ(count_of(text, "the ranks made different calls (the 4th of each): rank "), 1) << text;
    for (const char* rank : {"rank 0: ", "rank 1: ", "rank 2: "}) EXPECT_EQ(count_of(text, rank), 1) << text;
    EXPECT_GE(count_of(text, "broadcast(int32, 4 bytes, root "), 2) << text;
    EXPECT_EQ(count_of(text, "; no rank waited for another in this call, so no call failed\n"), 1) << text;
  }
}

TEST(UnmatchedCalls, OfRanksThatEachTakeAnotherForTheRootOfAGather) {
  const std::string text = said_by(2, [](Communicator& ranks) {
    const int value = 1;
    ranks.gather(&value, nullptr, sizeof value, 1 - ranks.rank());
  });
  EXPECT_EQ(count_of(text, "rank 0: gather(4 bytes, root 1) at "), 1) << text;
  EXPECT_EQ(count_of(text, "rank 1: gather(4 bytes, root 0) at "), 1) << text;
}

TEST(UnmatchedCalls, OfARootWhoseDataNobodyTakes) {
  for (int round = 0; round < 20; ++round) {
    const std::string text = said_by(2, [](Communicator& ranks) {
      int value = 1;
      if (ranks.rank() == 0) ranks.broadcast(std::span(&value, 1), 0);
    });
    EXPECT_EQ(count_of(text, "retinue: "), 1) << text;
    EXPECT_EQ(count_of(text,
                       "the ranks left after different numbers of calls: rank 0 after 4 calls, the last "
                       "broadcast(int32, 4 bytes, root 0) at "),
              1)
        << text;
    EXPECT_EQ(count_of(text, "; rank 1 after 3 barriers, the last at "), 1) << text;
    EXPECT_EQ(count_of(text, "unmatched_calls_test.cpp:"), 2) << text;
  }
}

TEST(UnmatchedCalls, InPeaceIsSilent) {
  for (int round = 0; round < 20; ++round)
    EXPECT_EQ(said_by(3,
                      [](Communicator& ranks) {
                        int value = 1;
                        for (int i = 0; i < 40; ++i) {
                          ranks.broadcast(std::span(&value, 1), i % 3);
                          if (i % 2 == ranks.rank() % 2)
                            ranks.broadcast(&value, sizeof value, 0);
                          else
                            ranks.broadcast(std::span(&value, 1), 0);
                        }
                      }),
              "");
}

TEST(UnmatchedCalls, AfterAFailureIsSilent) {
  const auto fail_after_broadcast = [](Communicator& ranks) {
    int value = 1;
    ranks.broadcast(std::span(&value, 1), 0);
    if (ranks.rank() == 1) throw std::runtime_error("of its own");
    EXPECT_THROW(ranks.barrier(), PeerLost);
  };
  const CapturedStderr captured;
  run_ranks(2, [&](const JobGroup& group) {
    captured.begin();
    try {
      Communicator ranks(group);
      fail_after_broadcast(ranks);
    } catch (const std::runtime_error&) {
      EXPECT_EQ(group.rank, 1);
    }
  });
  EXPECT_EQ(captured.text(), "");
}

}  // namespace
}  // namespace retinue::test
