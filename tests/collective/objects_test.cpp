#include "retinue/collective/objects.h"

#include <gtest/gtest.h>

#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <map>
#include <stdexcept>
#include <string>

#include "support/ranks.h"

namespace retinue::test {
namespace {

using Words = std::map<std::string, std::vector<int>>;

Words words_of(int rank) {
  Words words;
  for (int i = 0; i <= rank * 40; ++i) words["word " + std::to_string(i)] = std::vector<int>(3, rank);
  return words;
}

TEST(Objects, OfAnySizeReachAllRanks) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    for (int root = 0; root < 3; ++root) {
      Words words = words_of(group.rank);
      broadcast_object(communicator, words, root);
      EXPECT_EQ(words, words_of(root));
      const std::vector<Words> all = all_gather_object(communicator, words_of(group.rank));
      ASSERT_EQ(all.size(), 3u);
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(all[static_cast<std::size_t>(rank)], words_of(rank));
      const std::vector<Words> gathered = gather_object(communicator, words_of(group.rank), root);
      EXPECT_EQ(gathered, group.rank == root ? all : std::vector<Words>{});
      EXPECT_EQ(scatter_object(communicator, group.rank == root ? all : std::vector<Words>{}, root),
                words_of(group.rank));
    }
  });
}

TEST(Objects, ThatLieInJobMemoryArriveAsTheSameMemory) {
  run_ranks(3, [](const JobGroup& group) {
    JobMemory::set_current(group.memory);
    Communicator communicator(group);
    std::vector<SharedBlock> blocks;
    {
      SharedBlock own = SharedBlock::allocate(group.memory, 100);
      own.data()[0] = static_cast<std::byte>(group.rank);
      blocks = all_gather_object(communicator, own);
    }  // The givers let go of theirs.
    communicator.barrier();
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(blocks[static_cast<std::size_t>(rank)].data()[0], static_cast<std::byte>(rank));
    blocks[0].data()[10 + group.rank] = std::byte{7};
    communicator.barrier();
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(blocks[0].data()[10 + rank], std::byte{7});
    const SharedBlock taken = scatter_object(communicator, blocks, 2);
    EXPECT_EQ(taken.data(), blocks[static_cast<std::size_t>(group.rank)].data());
    SharedBlock sent = group.rank == 1 ? blocks[1] : SharedBlock();
    broadcast_object(communicator, sent, 1);
    EXPECT_EQ(sent.data(), blocks[1].data());
    communicator.barrier();
  });
}

struct Stubborn {
  bool fails_to_save = false;
  bool fails_to_load = false;
  template <class Archive>
  void save(Archive& archive) const {
    if (fails_to_save) throw std::domain_error("it does not want to go");
    archive(fails_to_load);
  }
  template <class Archive>
  void load(Archive& archive) {
    archive(fails_to_load);
    if (fails_to_load) throw std::domain_error("it does not want to come");
  }
};

TEST(Objects, ThatCannotBeArchivedAreAnErrorOnAllRanksAndTheGroupGoesOn) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    const Stubborn own{.fails_to_save = group.rank == 1};
    const auto expect_failure = [&](const auto& call) {
      try {
        call();
        ADD_FAILURE() << "it was sent";
      } catch (const std::domain_error&) {
        EXPECT_EQ(group.rank, 1);
      } catch (const UsageError& error) {
        EXPECT_NE(group.rank, 1);
        EXPECT_NE(std::string(error.what()).find("rank 1 "), std::string::npos) << error.what();
      }
    };
    expect_failure([&] { all_gather_object(communicator, own); });
    expect_failure([&] { gather_object(communicator, own, 0); });
    expect_failure([&] {
      Stubborn value = own;
      broadcast_object(communicator, value, 1);
    });
    expect_failure([&] { scatter_object(communicator, std::vector<Stubborn>(3, own), 1); });
    EXPECT_THROW(scatter_object(communicator, std::vector<int>{1, 2}, 0), UsageError);
    int value = 0;
    EXPECT_THROW(broadcast_object(communicator, value, -1), UsageError);
    EXPECT_THROW(scatter_object(communicator, std::vector<int>(3), 3), UsageError);
    EXPECT_THROW(gather_object(communicator, 1, -1), UsageError);  // Before anything is sent.
    EXPECT_THROW(all_gather_object(communicator, Stubborn{.fails_to_load = group.rank == 2}), std::domain_error);
    EXPECT_EQ(all_gather_object(communicator, group.rank), (std::vector{0, 1, 2}));
  });
}

TEST(Objects, TravelFromOneRankToAnother) {
  run_ranks(3, [](const JobGroup& group) {
    JobMemory::set_current(group.memory);
    Communicator communicator(group);
    if (group.rank != 0) {
      send_object(communicator, words_of(group.rank), 0, group.rank);
      {
        SharedBlock block = SharedBlock::allocate(group.memory, 100);
        block.data()[0] = static_cast<std::byte>(group.rank);
        send_object(communicator, block, 0, 7);
      }  // And lets go of it.
      communicator.barrier();
      return;
    }
    for (int i = 0; i < 2; ++i) {
      Words words;
      const Received received = recv_object(communicator, words, 2 - i, kAnyTag);
      EXPECT_EQ(received.tag, 2 - i);
      EXPECT_EQ(words, words_of(2 - i));
    }
    std::map<int, SharedBlock> blocks;
    for (int i = 0; i < 2; ++i) {
      SharedBlock block;
      const Received received = recv_object(communicator, block, kAnySource, 7);
      blocks[received.source] = block;
    }
    communicator.barrier();
    for (const auto& [rank, block] : blocks) EXPECT_EQ(block.data()[0], static_cast<std::byte>(rank));
    EXPECT_EQ(blocks.size(), 2u);
  });
}

/// Reads more than it writes.
struct Growing {
  template <class Archive>
  void save(Archive& archive) const {
    archive(1);
  }
  template <class Archive>
  void load(Archive& archive) {
    int first = 0;
    int second = 0;
    archive(first);
    archive(second);
  }
};

TEST(Objects, OfAnotherTypeAreRefusedAndTheGroupGoesOn) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    const auto expect_refusal = [&](const std::string& call, const std::string& given, const auto& body) {
      try {
        body();
        ADD_FAILURE() << call << ": it arrived";
      } catch (const UsageError& error) {
        const std::string text = error.what();
        for (const std::string& words : {"\"test group\": " + call + " at ", std::string("objects_test.cpp:"), given})
          EXPECT_NE(text.find(words), std::string::npos) << words << " in: " << text;
      }
    };
    std::vector<int> ints = {1, 2};
    std::vector<float> floats = {1, 2};
    if (group.rank == 0)
      broadcast_object(communicator, ints, 0);
    else
      expect_refusal("broadcast_object", "rank 0 sends a std::vector<int>",
                     [&] { broadcast_object(communicator, floats, 0); });
    if (group.rank == 2)
      expect_refusal("all_gather_object",
                     "rank 0 sends a float, but rank 2 expects a int: ", [&] { all_gather_object(communicator, 1); });
    else
      expect_refusal("all_gather_object",
                     "rank 2 sends a int, but rank " + std::to_string(group.rank) + " expects a float: ", [&] {
                       all_gather_object(communicator, 1.0F);
                     });
    if (group.rank == 0)
      scatter_object(communicator, std::vector<int>(3), 0);
    else
      expect_refusal("scatter_object", "rank 0 sends a int",
                     [&] { scatter_object(communicator, std::vector<double>(), 0); });
    Growing growing;
    if (group.rank == 0)
      broadcast_object(communicator, growing, 0);
    else
      expect_refusal("broadcast_object", "rank 0 sends a retinue::test::(anonymous namespace)::Growing, but rank ",
                     [&] { broadcast_object(communicator, growing, 0); });
    if (group.rank == 0) {
      send_object(communicator, ints, 1);
      const std::vector<std::byte> bytes(200, std::byte{1});
      communicator.send(std::span(bytes), 1);
    }
    if (group.rank == 1) {
      expect_refusal("recv_object", "rank 0 sends a std::vector<int>", [&] { recv_object(communicator, floats, 0); });
      EXPECT_THROW(recv_object(communicator, floats, 0), UsageError);
    }
    EXPECT_EQ(all_gather_object(communicator, group.rank), (std::vector{0, 1, 2}));
  });
}

TEST(Objects, ThatAreNoneAreErrorsOfTheReceiver) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    if (group.rank == 0) {
      communicator.send(std::span<const int>(), 1);
      send_object(communicator, 5, 1);
      send_object(communicator, 6, 1);
    } else {
      Words words;
      EXPECT_THROW(recv_object(communicator, words, 0), UsageError);
      EXPECT_THROW(recv_object(communicator, words, 0), UsageError);
      int value = 0;
      recv_object(communicator, value, 0);
      EXPECT_EQ(value, 6);
    }
  });
}

}  // namespace
}  // namespace retinue::test
