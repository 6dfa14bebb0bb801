#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(Requests, TellWhenTheyAreDone) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    if (group.rank == 1) {
      communicator.barrier();
      value = 42;
      communicator.send(std::span(&value, 1), 0, 5);
      EXPECT_EQ(communicator.recv(std::span(&value, 1), 0, 6).bytes, 4u);
      return;
    }
    int called = 0;
    const Request receive = communicator.irecv(std::span(&value, 1), 1, 5);
    receive.then([&] { called = value; });
    EXPECT_FALSE(receive.done());
    EXPECT_FALSE(receive.wait_for(5ms));  // Which breaks nothing.
    EXPECT_EQ(receive.exception(), nullptr);
    communicator.barrier();
    while (!receive.done()) {
    }
    EXPECT_EQ(called, 42);
    EXPECT_EQ(receive.received().source, 1);
    EXPECT_THROW(receive.then(nullptr), UsageError);
    receive.then([&] { called = 43; });
    EXPECT_EQ(called, 43);
    receive.wait();
    communicator.send(std::span(&value, 1), 1, 6);
  });
}

TEST(Requests, ThatAreDroppedBreakTheGroup) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> much(1 << 20);
    if (group.rank == 0) {
      {
        const Request receive = communicator.irecv(std::span(much), 1);  // Nobody else knows of it.
        receive.then([] { ADD_FAILURE() << "called back for what was dropped"; });
      }
      communicator.barrier();
      { const Request send = communicator.isend(std::span(much), 1); }
      EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
    } else {
      communicator.barrier();
      try {
        communicator.recv(std::span(much), 0);
        ADD_FAILURE() << "received what was dropped";
      } catch (const CollectiveMismatch& error) {
        EXPECT_NE(std::string(error.what()).find("rank 0 dropped the request of a message that waits to "),
                  std::string::npos)
            << error.what();
      }
    }
  });
}

TEST(Requests, ThatAreDroppedUnsentBreakTheGroup) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    int value = 0;
    if (group.rank == 0) {
      // More than a channel has envelopes: the last ones are not even on their way.
      for (int i = 0; i < 100; ++i) {
        try {
          (void)communicator.isend(std::span(&value, 1), 1);
        } catch (const CollectiveMismatch&) {
          EXPECT_GE(i, 32);
        }
      }
      other.barrier();
    } else {
      other.barrier();
      EXPECT_THROW(for (;;) communicator.recv(std::span(&value, 1), 0), CollectiveMismatch);
    }
  });
}

TEST(Requests, WhoseDataMayHaveChangedAreNotTaken) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    constexpr std::size_t kBytes = 1 << 20;
    std::vector<std::byte> buffer(kBytes);
    if (group.rank == 0) {
      const BlockHandle block = group.memory->allocate(kBytes);
      other.barrier();
      { const Request send = communicator.isend(std::span(group.memory->at(block.offset), kBytes), 1); }
      group.memory->release(block);
      other.barrier();
    } else {
      const Request receive = communicator.irecv(std::span(buffer), 0);
      other.barrier();
      other.barrier();
      EXPECT_THROW(receive.wait(), CollectiveMismatch);
    }
  });
}

TEST(Requests, CallBackWhateverCallEndsThem) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    int goes_on = 1;
    if (group.rank == 1) {
      communicator.send(std::span(&value, 1), 0);
      while (goes_on != 0) {
        std::this_thread::sleep_for(1ms);
        communicator.broadcast(std::span(&goes_on, 1), 0);
      }
      return;
    }
    std::vector<int> calls;
    Request receive = communicator.irecv(std::span(&value, 1), 1);
    receive.then([&] { calls.push_back(1); });
    receive.then([&] {
      calls.push_back(2);
      receive = {};
    });
    // Until the other comes late enough for this rank to look about.
    while (goes_on != 0) {
      goes_on = calls.empty() ? 1 : 0;
      communicator.broadcast(std::span(&goes_on, 1), 0);
    }
    EXPECT_EQ(calls, (std::vector<int>{1, 2}));
  });
}

TEST(Requests, ThatAreAskedOverAndOverStillEnd) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              if (group.rank == 1) raise(SIGKILL);
              int value = 0;
              const Request receive = communicator.irecv(std::span(&value, 1), 1);
              while (!receive.done()) {
              }
              EXPECT_THROW(receive.wait(), PeerLost);
            },
            {.killed = {1}});
}

TEST(Requests, ThatNobodyTakesHoldUpTheirSender) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    constexpr int kCount = 6000;  // Of 60 MB.
    std::vector<std::byte> data(10000);
    if (group.rank == 0) {
      std::vector<Request> sends;
      for (int i = 0; i < kCount; ++i) sends.push_back(communicator.isend(std::span(data), 1, 1));
      int value = 5;
      for (int i = 0; i < 20000; ++i) sends.back().wait_for(0ns);
      const auto away = std::count_if(sends.begin(), sends.end(), [](const Request& send) { return send.done(); });
      EXPECT_GT(away, 20);
      EXPECT_LT(away, 3000);
      other.barrier();
      for (const Request& send : sends) send.wait();
      communicator.send(std::span(&value, 1), 1, 9);
    } else {
      int value = 0;
      const Request end = communicator.irecv(std::span(&value, 1), kAnySource, 9);
      for (int i = 0; i < 100000; ++i) EXPECT_FALSE(end.done());
      other.barrier();
      for (int i = 0; i < kCount; ++i) communicator.recv(std::span(data), 0, 1);
      end.wait();
      EXPECT_EQ(value, 5);
    }
  });
}

TEST(Requests, EndWithTheirCommunicator) {
  run_ranks(2, [](const JobGroup& group) {
    std::optional<Communicator> communicator(std::in_place, group);
    int value = 0;
    const Request receive = communicator->irecv(std::span(&value, 1), 1 - group.rank);
    communicator->barrier();
    communicator.reset();
    EXPECT_TRUE(receive.done());
    EXPECT_THROW(receive.wait(), Closed);
  });
}

}  // namespace
}  // namespace retinue::test
