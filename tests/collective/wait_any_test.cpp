#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(WaitAny, ReturnsOneThatHasEnded) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = group.rank;
    if (group.rank != 0) {
      if (group.rank == 1) communicator.recv(std::span(&value, 1), 0);
      communicator.send(std::span(&value, 1), 0);
      return;
    }
    int values[2] = {0, 0};
    const std::vector<Request> requests = communicator.batch_isend_irecv(std::vector{
        P2POp::irecv(std::as_writable_bytes(std::span(&values[0], 1)), 1),
        P2POp::irecv(std::as_writable_bytes(std::span(&values[1], 1)), 2),
    });
    EXPECT_EQ(Request::wait_any(requests), 1u);  // The other's sender waits for what comes next.
    EXPECT_EQ(values[1], 2);
    EXPECT_EQ(Request::wait_any(requests, 0ns), 1u);
    int go = 7;
    communicator.send(std::span(&go, 1), 1);
    EXPECT_EQ(Request::wait_any(std::span(requests).first(1)), 0u);
    EXPECT_EQ(values[0], 7);
  });
}

TEST(WaitAny, MayComeAfterTheEndOfTheCommunicator) {
  run_ranks(2, [](const JobGroup& group) {
    std::vector<int> values{0, 0};
    std::vector<Request> requests;
    int called = 0;
    {
      Communicator communicator(group);
      const int peer = 1 - group.rank;
      requests.push_back(communicator.isend(std::span(&group.rank, 1), peer));
      requests.push_back(communicator.irecv(std::span(values).first(1), peer));
      for (const Request& request : requests) request.wait();
      requests.push_back(communicator.irecv(std::span(values).last(1), peer, 5));
      requests.back().then([&] { ++called; });
      communicator.barrier();
    }
    EXPECT_EQ(Request::wait_any(requests), 0u);
    EXPECT_EQ(called, 1);
    EXPECT_EQ(Request::wait_any(std::span(requests).last(1), requests.back()), 0u);
    EXPECT_THROW(requests.back().wait(), Closed);
    EXPECT_EQ(values[0], 1 - group.rank);
  });
}

TEST(WaitAny, MayBeToldWhichOneIsNeeded) {
  const CapturedStderr captured;
  run_ranks(3, [&](const JobGroup& group) {
    captured.begin();
    Communicator communicator(group, {.late_after = group.rank == 0 ? 1100ms : 0ms});
    const auto is_told = [&] { return captured.text().find("rank 1 is late\n") != std::string::npos; };
    int value = group.rank;
    if (group.rank != 0) {
      if (group.rank == 1) {
        EXPECT_TRUE(wait_until(is_told)) << captured.text();
      }
      if (group.rank == 2) communicator.recv(std::span(&value, 1), 0);  // When all is over.
      communicator.send(std::span(&value, 1), 0);
      return;
    }
    int values[2] = {0, 0};
    const std::vector<Request> requests{communicator.irecv(std::span(&values[0], 1), 1),
                                        communicator.irecv(std::span(&values[1], 1), 2)};
    EXPECT_EQ(Request::wait_any(requests, requests[0]), 0u);
    EXPECT_EQ(captured.text().find("ranks 1 and 2 are late"), std::string::npos) << captured.text();
    EXPECT_THROW(Request::wait_any(std::span(requests).last(1), requests[0]), UsageError);
    communicator.send(std::span(&values[0], 1), 2);
    requests[1].wait();
    EXPECT_EQ(values[0] + values[1], 2);
  });
}

TEST(WaitAny, ReturnsNothingWhenItsTimeIsOver) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    if (group.rank == 0) {
      const Request receive = communicator.irecv(std::span(&value, 1), 1);
      EXPECT_EQ(Request::wait_any({&receive, 1}, 5ms), std::nullopt);
      communicator.barrier();
      EXPECT_EQ(Request::wait_any({&receive, 1}), 0u);
    } else {
      communicator.barrier();
      communicator.send(std::span(&value, 1), 0);
    }
  });
}

TEST(WaitAny, TakesNoRequestsOfSeveralCommunicators) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator one(group);
    Communicator other(group);
    int values[2] = {0, 0};
    const Request requests[] = {one.irecv(std::span(&values[0], 1), 1 - group.rank),
                                other.irecv(std::span(&values[1], 1), 1 - group.rank)};
    EXPECT_THROW(Request::wait_any(requests), UsageError);
    EXPECT_THROW(Request::wait_any({}), UsageError);
    EXPECT_THROW(Request::wait_any(std::vector<Request>(1)), UsageError);
  });
}

TEST(WaitAny, IsInterruptedByAnotherThread) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    if (group.rank == 0) {
      const Request receive = communicator.irecv(std::span(&value, 1), 1);
      // However deep it sleeps, and also before it begins.
      for (const auto delay : {0us, 1us, 100us, 3000us}) {
        for (int i = 0; i < 20; ++i) {
          std::thread other([&] {
            std::this_thread::sleep_for(delay);
            communicator.interrupt();
          });
          EXPECT_EQ(Request::wait_any({&receive, 1}), std::nullopt);
          other.join();
        }
      }
      communicator.interrupt();  // Other waits don't mind.
      communicator.barrier();
      receive.wait();
      EXPECT_EQ(value, 5);
    } else {
      communicator.barrier();
      value = 5;
      communicator.send(std::span(&value, 1), 0);
    }
  });
}

/// Interruptions over and over lose no message, and are not lost themselves.
TEST(WaitAny, GoesOnAfterInterruptions) {
  constexpr int kMessages = is_sanitized() ? 500 : 5000;
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    if (group.rank == 1) {
      for (int i = 0; i < kMessages; ++i) communicator.send(std::span(&i, 1), 0);
      return;
    }
    std::atomic<bool> done = false;
    std::thread other([&] {
      while (!done) communicator.interrupt();
    });
    for (int i = 0; i < kMessages; ++i) {
      int value = -1;
      const Request receive = communicator.irecv(std::span(&value, 1), 1);
      while (!Request::wait_any({&receive, 1})) {
      }
      ASSERT_EQ(value, i);
    }
    done = true;
    other.join();
  });
}

TEST(WaitAny, EndsWithThePeerOfOneOfThem) {
  run_ranks(3,
            [](const JobGroup& group) {
              Communicator communicator(group);
              int values[2] = {0, 0};
              if (group.rank == 2) kill(getpid(), SIGKILL);
              if (group.rank == 1) {
                EXPECT_THROW(communicator.recv(std::span(&values[0], 1), 0), PeerLost);
                return;
              }
              const Request requests[] = {communicator.irecv(std::span(&values[0], 1), 1),
                                          communicator.irecv(std::span(&values[1], 1), 2)};
              ASSERT_NE(Request::wait_any(requests), std::nullopt);
              for (const Request& request : requests) {
                try {
                  request.wait();
                  ADD_FAILURE() << "received from the dead";
                } catch (const PeerLost& error) {
                  EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
                }
              }
            },
            {.killed = {2}});
}

TEST(WaitAny, HoldsToTheTimeoutThatEachBeganWith) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int values[2] = {0, 0};
    if (group.rank == 0) {
      const Request patient = communicator.irecv(std::span(&values[0], 1), 1, 1);
      communicator.set_timeout(20ms);
      const Request impatient = communicator.irecv(std::span(&values[1], 1), 1, 2);
      communicator.set_timeout(1h);
      const Request requests[] = {patient, impatient};
      ASSERT_NE(Request::wait_any(requests), std::nullopt);
      try {
        impatient.wait();
        ADD_FAILURE() << "received what nobody sent";
      } catch (const TimeoutError& error) {
        EXPECT_NE(std::string(error.what()).find("tag 2"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("timeout of 20 ms"), std::string::npos) << error.what();
      }
      EXPECT_THROW(patient.wait(), TimeoutError);
    } else {
      EXPECT_THROW(communicator.recv(std::span(&values[0], 1), 0), TimeoutError);
    }
  });
}

}  // namespace
}  // namespace retinue::test
