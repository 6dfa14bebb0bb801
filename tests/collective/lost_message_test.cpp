#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

/// The message of the PeerLost that ends `call`.
template <typename Call>
std::string lost_in(Call call, int rank) {
  try {
    call();
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{rank}) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no PeerLost";
  return "";
}

class LostMessage : public testing::TestWithParam<std::size_t> {};
// In an envelope, whole, and in pieces.
INSTANTIATE_TEST_SUITE_P(Bytes, LostMessage, testing::Values(8, 10000, 3000000));

TEST_P(LostMessage, EndsAReceiveFromTheDead) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              std::vector<std::byte> data(GetParam());
              if (group.rank == 1) {
                std::this_thread::sleep_for(20ms);  // The other is parked by then, or not: both must do.
                raise(SIGKILL);
              }
              const std::string message = lost_in([&] { communicator.recv(std::span(data), 1, 4); }, 1);
              EXPECT_NE(message.find("rank 0 waits to receive at most " + std::to_string(data.size()) +
                                     " bytes from rank 1 (tag 4) at "),
                        std::string::npos)
                  << message;
              EXPECT_NE(message.find("lost_message_test.cpp:"), std::string::npos) << message;
              EXPECT_THROW(communicator.send(std::span(data), 1), PeerLost);
              EXPECT_THROW(communicator.barrier(), PeerLost);
            },
            {.killed = {1}});
}

TEST_P(LostMessage, LeavesWhatWasSentBefore) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              std::vector<std::byte> data(GetParam(), std::byte{5});
              if (group.rank == 1) {
                communicator.send(std::span(data), 0);
                raise(SIGKILL);
              }
              std::vector<std::byte> got(data.size());
              EXPECT_EQ(communicator.recv(std::span(got), 1).bytes, data.size());
              EXPECT_EQ(got, data);
              lost_in([&] { communicator.recv(std::span(got), 1); }, 1);
            },
            {.killed = {1}});
}

TEST(LostMessage, EndsASendToTheDead) {
  for (const bool left : {false, true})
    run_ranks(2,
              [left](const JobGroup& group) {
                Communicator communicator(group);
                std::vector<std::byte> data(3000000);
                if (group.rank == 1) {
                  if (left) return;
                  raise(SIGKILL);
                }
                const std::string message = lost_in([&] { communicator.send(std::span(data), 1); }, 1);
                EXPECT_NE(message.find("rank 0 waits to send 3000000 bytes to rank 1 (tag 0) at "), std::string::npos)
                    << message;
              },
              {.killed = left ? std::vector<int>{} : std::vector<int>{1}});
}

TEST(LostMessage, EndsAReceiveFromAnySourceWhenOneDies) {
  run_ranks(4,
            [](const JobGroup& group) {
              Communicator communicator(group);
              int value = 0;
              if (group.rank == 2) raise(SIGKILL);
              if (group.rank == 0) {
                lost_in([&] { communicator.recv(std::span(&value, 1), kAnySource, kAnyTag); }, 2);
              } else {
                lost_in([&] { communicator.recv(std::span(&value, 1), 0); }, 2);
              }
            },
            {.killed = {2}});
}

TEST(LostMessage, IsNoticedInFullSwing) {
  for (int i = 0; i < 20; ++i)
    run_ranks(3,
              [i](const JobGroup& group) {
                Communicator communicator(group);
                std::thread killer;
                if (group.rank == 1)
                  killer = std::thread([i] {
                    std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
                    kill(getpid(), SIGKILL);
                  });
                std::vector<std::byte> out(70000, static_cast<std::byte>(group.rank));
                std::vector<std::byte> in(70000);
                const int next = (group.rank + 1) % 3;
                const int previous = (group.rank + 2) % 3;
                try {
                  for (;;) {
                    communicator.sendrecv(std::span(out), next, std::span(in), previous);
                    ASSERT_EQ(in, std::vector<std::byte>(70000, static_cast<std::byte>(previous)));
                  }
                } catch (const PeerLost& error) {
                  EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
                }
              },
              {.killed = {1}});
}

TEST(LostMessage, TimesOutByName) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    if (group.rank == 1) {
      // Is told what became of the group, by who noticed.
      EXPECT_THROW(communicator.recv(std::span(&value, 1), 0, 9), TimeoutError);
      return;
    }
    communicator.set_timeout(100ms);
    try {
      communicator.recv(std::span(&value, 1), 1, 8);
      ADD_FAILURE() << "received what was not sent";
    } catch (const TimeoutError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("rank 0 waits to receive at most 4 bytes from rank 1 (tag 8) at "), std::string::npos)
          << message;
      EXPECT_NE(message.find("its timeout of 100 ms passed; missing: rank 1 (pid "), std::string::npos) << message;
    }
  });
}

}  // namespace
}  // namespace retinue::test
