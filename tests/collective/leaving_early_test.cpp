// Ranks that are done with a call before others have come to it.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collective/board/line.h"
#include "collective/exchange_model.h"
#include "ipc/memory/process_table.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

/// A count that forked ranks share with the test.
class SharedCount {
 public:
  void add() { ++*count_; }
  bool await(int count) const {
    return wait_until([&] { return *count_ >= count; });
  }

 private:
  ForkShared<std::atomic<int>> count_;
};

bool needs_no_other(CollectiveKind kind, int rank, int root) {
  switch (kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter:
      return rank == root;
    case CollectiveKind::kGather:
    case CollectiveKind::kReduce:
      return rank != root;
    default:
      return rank == 0;
  }
}

struct Way {
  CollectiveKind kind;
  Place place;
  std::size_t count;  ///< Of floats.
};

class LeavingEarly : public testing::TestWithParam<Way> {};

std::vector<Way> ways() {
  std::vector<Way> all;
  for (const CollectiveKind kind : {CollectiveKind::kBroadcast, CollectiveKind::kScatter, CollectiveKind::kGather,
                                    CollectiveKind::kReduce, CollectiveKind::kScan})
    for (const Place place : {Place::kPrivate, Place::kJob})
      for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{300}, std::size_t{500}})
        all.push_back({kind, place, count});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ways, LeavingEarly, testing::ValuesIn(ways()), [](const auto& info) {
  return std::string(name_of(info.param.kind)) + (info.param.place == Place::kJob ? "_job_" : "_private_") +
         std::to_string(info.param.count);
});

constexpr int kRanks = 3;

/// How many calls may be ahead of the slowest: a slot for each line, but only two of the large staging buffers.
int most_ahead(const Way& way) {
  const std::size_t parts = input_parts(way.kind, kRanks);
  return way.count * sizeof(float) * parts <= 4096 ? static_cast<int>(kLines) - 1 : 1;
}

TEST_P(LeavingEarly, WhoNeedsNoOtherWaitsForNone) {
  const Way way = GetParam();
  SharedCount done;
  run_ranks(kRanks, [&](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    constexpr int kRoot = 0;
    const bool leaves = needs_no_other(way.kind, group.rank, kRoot);
    const int leavers = way.kind == CollectiveKind::kGather || way.kind == CollectiveKind::kReduce ? kRanks - 1 : 1;
    if (!leaves) {
      ASSERT_TRUE(done.await(leavers)) << "somebody waits for this rank";
    }
    for (int call = 0; call < most_ahead(way); ++call)
      check_exchange<float>(communicator, {.kind = way.kind,
                                           .count = way.count,
                                           .input_place = way.place,
                                           .output_place = way.place,
                                           .root = kRoot,
                                           .seed = static_cast<std::uint64_t>(call)});
    if (leaves) done.add();
    communicator.barrier();
  });
}

constexpr int kRing = static_cast<int>(kLines);

/// Calls until the group fails; says how many went well, and why the last did not.
template <typename Failure>
std::pair<int, std::string> broadcast_until_failure(Communicator& communicator) {
  int value = 0;
  for (int calls = 0;; ++calls) try {
      communicator.broadcast(&value, sizeof value, communicator.rank());
    } catch (const Failure& error) {
      return {calls, error.what()};
    }
}

TEST(LeavesEarly, AsFarAsTheRingGoes) {
  SharedCount done;
  run_ranks(2, [&](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    if (group.rank == 1) {
      ASSERT_TRUE(done.await(1));
      return;
    }
    communicator.set_timeout(std::chrono::milliseconds(100));
    const auto [calls, text] = broadcast_until_failure<TimeoutError>(communicator);
    EXPECT_EQ(calls, kRing - 1) << text;
    const std::string behind = std::to_string(kRing / 2).append(" or more calls behind its last");
    for (const char* const words :
         {behind.c_str(), "rank 0 waits for ranks that are ", ", broadcast(4 bytes, root 0) at ",
          "leaving_early_test.cpp:", "its timeout of 100 ms passed; missing: rank 1", "after 1 barrier, the last at "})
      EXPECT_NE(text.find(words), std::string::npos) << words << " in: " << text;
    done.add();
  });
}

TEST(LeavesEarly, AndLearnsThatAnotherIsGone) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              communicator.barrier();
              if (group.rank == 1) raise(SIGKILL);
              const auto [calls, text] = broadcast_until_failure<PeerLost>(communicator);
              EXPECT_EQ(calls, kRing - 1) << text;
              EXPECT_NE(text.find("rank 1 (pid "), std::string::npos) << text;
              EXPECT_THROW(communicator.barrier(), PeerLost);
            },
            {.killed = {1}});
}

TEST(LeavesEarly, AndTellsReceivesThatAnotherIsGone) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              communicator.barrier();
              if (group.rank == 1) raise(SIGKILL);
              int value = 0;
              bool told = false;
              const Request request = communicator.irecv(std::span(&value, 1), 1);
              request.then([&] { told = true; });
              broadcast_until_failure<PeerLost>(communicator);
              EXPECT_TRUE(told);
              EXPECT_TRUE(request.exception());
            },
            {.killed = {1}});
}

TEST(LeavesEarly, WithDataForWhoComesLaterThoughItsRankHasEnded) {
  SharedCount done;
  run_ranks(2, [&](const JobGroup& group) {
    int value = 17 * group.rank;
    Communicator communicator(group);
    communicator.barrier();
    if (group.rank == 0) {
      ASSERT_TRUE(done.await(1));
      const ProcessSlot& giver = process_slot(*group.memory, group.process_slots[1]);
      EXPECT_TRUE(wait_until([&] { return !giver.is_alive(); })) << "rank 1 does not end";
    }
    communicator.broadcast(std::span(&value, 1), 1);
    EXPECT_EQ(value, 17);
    if (group.rank == 1) done.add();
  });
}

/// Each takes itself for the root, and needs nobody.
TEST(LeavesEarly, AndLearnsOfAMismatchByTheNextCallOfAll) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    int value = group.rank;
    communicator.broadcast(&value, sizeof value, group.rank);
    try {
      communicator.barrier();
      ADD_FAILURE() << "the broadcasts went together";
    } catch (const CollectiveMismatch& error) {
      const std::string text = error.what();
      for (const char* const words : {"(the 2nd of each)", "rank 0: broadcast(4 bytes, root 0) at ",
                                      "rank 1: broadcast(4 bytes, root 1) at ", "leaving_early_test.cpp:"})
        EXPECT_NE(text.find(words), std::string::npos) << words << " in: " << text;
    }
  });
}

TEST(LeavesEarly, AndLearnsOfAMismatchWhereNoCallIsOfAll) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    const auto [calls, text] = broadcast_until_failure<CollectiveMismatch>(communicator);
    EXPECT_LT(calls, 2 * kRing);
    EXPECT_NE(text.find("(the 2nd of each)"), std::string::npos) << text;
  });
}

/// What each giver of a gather does hangs on nothing but its own data.
TEST(LeavesEarly, FromGathersThatOthersComeToWithMuch) {
  SharedCount done;
  run_ranks(5, [&](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    const std::vector<std::size_t> bytes = {100, 8, 3000, 300'000, 0};
    const auto own = static_cast<std::size_t>(group.rank);
    const bool leaves = bytes[own] <= 3000 && group.rank != 0;
    if (!leaves) {
      ASSERT_TRUE(done.await(3)) << "somebody waits for this rank";
    }
    std::vector<std::vector<std::byte>> parts;
    for (const std::size_t part : bytes) parts.emplace_back(part);
    const std::vector<Bytes> outputs(parts.begin(), parts.end());
    std::vector<std::byte> input(bytes[own], static_cast<std::byte>(group.rank + 1));
    if (group.rank == 1)
      communicator.gather(input.data(), static_cast<void*>(nullptr), input.size(), 0);
    else
      communicator.run(CollectiveCall::gather(input, group.rank == 0 ? std::span(outputs) : std::span<Bytes>(), 0));
    std::fill(input.begin(), input.end(), std::byte{0xee});
    if (leaves) done.add();
    for (std::size_t from = 0; from < parts.size() && group.rank == 0; ++from)
      EXPECT_EQ(parts[from], std::vector<std::byte>(bytes[from], static_cast<std::byte>(from + 1))) << from;
    communicator.barrier();
  });
}

/// Rank 0 takes into its input what the others gave, and rank 1 doesn't stage as they do.
TEST(LeavesEarly, ButReadsNoInputThatItHasWrittenOver) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    for (int call = 0; call < 20; ++call)
      check_exchange<float>(communicator, {.kind = CollectiveKind::kAllToAll,
                                           .count = 2048,
                                           .input_place = group.rank == 1 ? Place::kJob : Place::kPrivate,
                                           .output_place = group.rank == 1 ? Place::kJob : Place::kPrivate,
                                           .in_place = group.rank == 0,
                                           .seed = static_cast<std::uint64_t>(call)});
  });
}

/// Threads, so that ThreadSanitizer sees who reads what another writes again.
TEST(LeavesEarly, AndWritesOverNothingThatOthersStillRead) {
  run_rank_threads(4, [](const JobGroup& group) {
    Communicator communicator(group);
    std::mt19937 random(7);  // The same on all.
    std::mt19937 own(static_cast<unsigned>(group.rank));
    for (int call = 0; call < (is_sanitized() ? 1000 : 4000); ++call) {
      constexpr std::size_t kCounts[] = {1, 8, 200, 1000, 2000, 5000};
      constexpr CollectiveKind kKinds[] = {CollectiveKind::kBroadcast, CollectiveKind::kBroadcast,
                                           CollectiveKind::kScatter,   CollectiveKind::kGather,
                                           CollectiveKind::kReduce,    CollectiveKind::kScan};
      const CollectiveKind kind = kKinds[random() % std::size(kKinds)];
      const std::size_t count = kCounts[random() % std::size(kCounts)];
      const auto root = static_cast<int>(random() % 50 == 0 ? random() % 4 : call / 200 % 4);
      check_exchange<float>(communicator, {.kind = kind,
                                           .count = count,
                                           .input_place = random() % 2 == 0 ? Place::kPrivate : Place::kJob,
                                           .output_place = Place::kPrivate,
                                           .root = root,
                                           .seed = static_cast<std::uint64_t>(call)});
      if (own() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 200));
    }
  });
}

}  // namespace
}  // namespace retinue::test
