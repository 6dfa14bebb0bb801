// Collectives that were begun and come to nothing: each that was begun, and who waits for it, learns why.
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "collective/begun.h"
#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(FailedBegunCollective, ThatCantEndEndsTheWaitForAMessageBehindIt) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    if (group.rank == 2) return;
    int value = 0;
    try {
      // Which throws where the other rank has missed rank 2 before.
      const Request begun = communicator.start(CollectiveCall::barrier());
      communicator.recv(std::span(&value, 1), 1 - group.rank);  // Which the other would send behind the barrier.
      ADD_FAILURE() << "received what nobody sent";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
    }
    EXPECT_THROW(communicator.barrier(), PeerLost);
  });
}

TEST(FailedBegunCollective, OfListsThatDifferIsAMismatchWithoutAWait) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    std::vector<std::int64_t> data(group.rank == 0 ? 10 : 20, 1);
    const Bytes buffers[] = {std::as_writable_bytes(std::span(data))};
    const CollectiveCall call = CollectiveCall::all_reduce_coalesced(buffers, Dtype::kInt64, ReduceOp::kSum);
    const Request begun = communicator.start(call);
    other.barrier();
    if (group.rank == 0) {
      wait_by_asking(begun);
      EXPECT_THROW(begun.wait(), CollectiveMismatch);
      other.barrier();
    } else {
      other.barrier();  // Behind the other's asking, which doesn't wait for this.
      EXPECT_THROW(begun.wait(), CollectiveMismatch);
    }
  });
}

TEST(FailedBegunCollective, EndsWithWhatBrokeTheGroupAlsoWhereItIsDropped) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    if (group.rank == 1) {
      std::int64_t value = 0;
      other.barrier();
      EXPECT_THROW(communicator.all_reduce(std::span(&value, 1)), CollectiveMismatch);
      other.barrier();
      return;
    }
    {
      const Request begun = communicator.start(CollectiveCall::barrier());
      other.barrier();
      other.barrier();
      EXPECT_THROW(static_cast<void>(communicator.start(CollectiveCall::barrier())), CollectiveMismatch);
      EXPECT_TRUE(begun.done());
    }
    EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
  });
}

std::string mismatch_of(const Request& request) {
  try {
    request.wait();
  } catch (const CollectiveMismatch& error) {
    return error.what();
  }
  return "no error";
}

TEST(FailedBegunCollective, ThatMeetsAnotherIsAMismatchForAllBehindIt) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    std::vector<std::int64_t> data(10, 1);
    const Request first = communicator.start(group.rank == 0 ? CollectiveCall::barrier() : sum_of(data));
    const Request second = communicator.start(CollectiveCall::barrier());
    other.barrier();  // Nothing can be begun any more once one of them has waited.
    const std::string text = mismatch_of(first);
    EXPECT_NE(text.find("all_reduce"), std::string::npos) << text;
    EXPECT_NE(text.find("begun_failures_test.cpp"), std::string::npos) << text;
    EXPECT_EQ(mismatch_of(second), text);
    EXPECT_NE(first.exception(), nullptr);
    EXPECT_THROW(static_cast<void>(communicator.start(CollectiveCall::barrier())), CollectiveMismatch);
  });
}

TEST(FailedBegunCollective, OfALostPeerEndsForWhoWaitsAndForWhoAsks) {
  run_ranks(3,
            [](const JobGroup& group) {
              Communicator communicator(group);
              std::vector<std::int64_t> data(200'000, 1);
              communicator.barrier();
              if (group.rank == 2) {
                std::this_thread::sleep_for(10ms);
                std::raise(SIGKILL);
              }
              const Request begun = communicator.start(sum_of(data));
              const Request behind = communicator.start(CollectiveCall::barrier());
              try {
                if (group.rank == 0) wait_by_asking(behind);
                behind.wait();
                ADD_FAILURE() << "nobody was missed";
              } catch (const PeerLost& error) {
                EXPECT_EQ(error.ranks(), std::vector<int>{2});
              }
              EXPECT_THROW(begun.wait(), PeerLost);
            },
            {.killed = {2}});
}

TEST(FailedBegunCollective, TimesOut) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = 30s});
    Communicator other(group);
    if (group.rank == 0) {
      communicator.set_timeout(20ms);
      const Request begun = communicator.start(CollectiveCall::barrier());
      EXPECT_THROW(begun.wait(), TimeoutError);
      EXPECT_TRUE(begun.done());
      other.barrier();
    } else {
      other.barrier();
      EXPECT_THROW(communicator.barrier(), TimeoutError);
    }
  });
}

TEST(FailedBegunCollective, ThatIsDroppedIsAnErrorOnAllRanks) {
  run_ranks(1, [](const JobGroup& group) {
    Communicator communicator(group);
    { const Request dropped = communicator.start(CollectiveCall::barrier()); }
    EXPECT_THROW(communicator.barrier(), UsageError);
  });
  for (const bool drops_the_first : {true, false})
    run_ranks(2, [&](const JobGroup& group) {
      Communicator communicator(group);
      Communicator other(group);
      if (group.rank == 0) {
        Request first = communicator.start(CollectiveCall::barrier());
        Request second = communicator.start(CollectiveCall::barrier());
        { const Request copy = first; }  // Nothing is dropped.
        (drops_the_first ? first : second) = Request();
        other.barrier();
        const std::string text = usage_error_of([&] { communicator.barrier(); });
        EXPECT_NE(text.find("rank 0 dropped its request before barrier, started at "), std::string::npos) << text;
        EXPECT_NE(text.find("begun_failures_test.cpp:"), std::string::npos) << text;
        EXPECT_THROW((drops_the_first ? second : first).wait(), UsageError);
      } else {
        other.barrier();
        EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
      }
    });
}

/// Then the exception is what counts, and no advice.
TEST(FailedBegunCollective, ThatAnExceptionDropsIsALostPeerToTheOthers) {
  for (const bool is_message : {true, false})
    run_ranks(2, [&](const JobGroup& group) {
      Communicator communicator(group);
      Communicator other(group);
      std::vector<std::byte> much(1 << 20);
      if (group.rank == 0) {
        try {
          const Request dropped =
              is_message ? communicator.isend(std::span(much), 1) : communicator.start(CollectiveCall::barrier());
          throw std::runtime_error("the disk is full");
        } catch (const std::runtime_error&) {
          other.barrier();
        }
        EXPECT_THROW(communicator.barrier(), Error);
        return;
      }
      other.barrier();
      try {
        communicator.recv(std::span(much), 0);
        ADD_FAILURE() << "nobody sends";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.ranks(), std::vector<int>{0});
        EXPECT_NE(std::string(error.what()).find(", because of an exception"), std::string::npos) << error.what();
      }
    });
}

TEST(FailedBegunCollective, CallsBackWhoseCallsFail) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              communicator.barrier();
              if (group.rank == 1) std::raise(SIGKILL);
              bool called = false;
              int value = 0;
              try {
                const Request begun = communicator.start(CollectiveCall::barrier());
                begun.then([&] {
                  called = true;
                  communicator.send(std::span(&value, 1), 1);
                });
                begun.wait();
                ADD_FAILURE() << "nobody was missed";
              } catch (const PeerLost&) {
                EXPECT_TRUE(called);
              }
              EXPECT_THROW(communicator.barrier(), PeerLost);
            },
            {.killed = {1}});
}

TEST(FailedBegunCollective, OutlivesItsCommunicatorAsClosed) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator other(group);
    auto communicator = std::make_unique<Communicator>(group);
    other.barrier();
    if (group.rank == 0) {
      const Request begun = communicator->start(CollectiveCall::barrier());
      communicator.reset();
      EXPECT_TRUE(begun.done());
      EXPECT_THROW(begun.wait(), Closed);
      other.barrier();
    } else {
      other.barrier();
      EXPECT_THROW(communicator->barrier(), CollectiveMismatch);
    }
  });
}

TEST(FailedBegunCollective, IsRefusedBeforeItBegins) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    EXPECT_THROW(static_cast<void>(communicator.start(CollectiveCall::broadcast(&value, sizeof value, 2))), UsageError);
    communicator.barrier();
  });
}

}  // namespace
}  // namespace retinue::test
