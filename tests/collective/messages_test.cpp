#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

/// Bytes that tell from whom they are and which message.
std::vector<std::byte> content(int source, int number, std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    data[i] = static_cast<std::byte>(i * 31 + i / 251 + static_cast<std::size_t>(source * 7 + number * 13));
  return data;
}

// Around the borders of: an envelope, what is sent whole, a piece, a channel's space.
constexpr std::size_t kMessageSizes[] = {0,     1,     39,    40,     41,     64,     1000,   16383,   16384,  16385,
                                         65535, 65536, 65537, 262143, 262144, 262145, 300000, 1048577, 5000001};

TEST(Messages, OfAllSizesBetweenAllKindsOfMemory) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    const BlockHandle block = group.memory->allocate(5000001);
    const Bytes shared{group.memory->at(block.offset), 5000001};
    const int other = 1 - group.rank;
    for (const std::size_t bytes : kMessageSizes)
      for (int kinds = 0; kinds < 4; ++kinds) {
        const std::vector<std::byte> expected = content(0, kinds, bytes);
        std::vector<std::byte> own = group.rank == 0 ? expected : std::vector<std::byte>(bytes);
        const bool in_job = (kinds >> group.rank & 1) != 0;
        const Bytes data = in_job ? shared.first(bytes) : Bytes(own);
        if (in_job && !data.empty()) std::memcpy(data.data(), own.data(), bytes);
        if (group.rank == 0) {
          communicator.send(data, other, kinds);
          std::fill(data.begin(), data.end(), std::byte{0xee});  // From now on it is the sender's own again.
        } else {
          const Received received = communicator.recv(data, other, kinds);
          EXPECT_EQ(received.source, 0);
          EXPECT_EQ(received.tag, kinds);
          EXPECT_EQ(received.bytes, bytes);
          EXPECT_TRUE(std::equal(data.begin(), data.end(), expected.begin())) << bytes << " bytes, kinds " << kinds;
        }
      }
    group.memory->release(block);
  });
}

TEST(Messages, AreTakenByTagAndKeepTheirOrder) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    constexpr int kCount = 300;  // More than a channel has envelopes.
    std::vector<Request> requests;
    std::vector<std::vector<std::byte>> data;
    if (group.rank == 0) {
      for (int i = 0; i < kCount; ++i) data.push_back(content(0, i, i % 3 == 0 ? 20000 : 10));
      for (int i = 0; i < kCount; ++i)
        requests.push_back(communicator.isend(std::span(data[static_cast<std::size_t>(i)]), 1, i % 2));
      for (const Request& request : requests) request.wait();
    } else {
      std::vector<std::byte> buffer(20000);
      for (const int tag : {1, 0})
        for (int i = tag; i < kCount; i += 2) {
          const Received received = communicator.recv(std::span(buffer), 0, tag);
          const std::vector<std::byte> expected = content(0, i, i % 3 == 0 ? 20000 : 10);
          ASSERT_EQ(received.bytes, expected.size());
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), buffer.begin())) << "message " << i;
        }
    }
  });
}

TEST(Messages, FromAnySourceWithAnyTag) {
  run_ranks(5, [](const JobGroup& group) {
    Communicator communicator(group);
    constexpr int kEach = 50;
    if (group.rank != 0) {
      for (int i = 0; i < kEach; ++i) {
        const int value = group.rank * 1000 + i;
        communicator.send(std::span(&value, 1), 0, group.rank + i % 2);
      }
      return;  // And leaves the group while others still send.
    }
    std::vector<int> next(5);
    for (int i = 0; i < 4 * kEach; ++i) {
      int value = -1;
      const Received received = communicator.recv(std::span(&value, 1), kAnySource, kAnyTag);
      const int number = next[static_cast<std::size_t>(received.source)]++;
      EXPECT_EQ(value, received.source * 1000 + number);
      EXPECT_EQ(received.tag, received.source + number % 2);
    }
    EXPECT_EQ(next, (std::vector<int>{0, kEach, kEach, kEach, kEach}));
    int value = 0;
    try {
      communicator.recv(std::span(&value, 1), kAnySource);
      ADD_FAILURE() << "received from nobody";
    } catch (const PeerLost& error) {
      EXPECT_NE(std::string(error.what()).find("receive at most 4 bytes from any rank (tag 0) at "), std::string::npos)
          << error.what();
    }
  });
}

TEST(Messages, GoRoundARingBothWaysAtOnce) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100000}, std::size_t{3000000}})
    run_ranks(4, [bytes](const JobGroup& group) {
      Communicator communicator(group);
      const int next = (group.rank + 1) % 4;
      const int previous = (group.rank + 3) % 4;
      const std::vector<std::byte> own = content(group.rank, 0, bytes);
      std::vector<std::byte> got(bytes);
      std::vector<std::byte> got_too(bytes);
      communicator.sendrecv(std::span(own), next, std::span(got), previous);
      EXPECT_EQ(got, content(previous, 0, bytes));
      const P2POp batch[] = {P2POp::isend(own, next, 1), P2POp::isend(own, previous, 2), P2POp::irecv(got, next, 2),
                             P2POp::irecv(got_too, previous, 1)};
      for (const Request& request : communicator.batch_isend_irecv(batch)) request.wait();
      EXPECT_EQ(got, content(next, 0, bytes));
      EXPECT_EQ(got_too, content(previous, 0, bytes));
    });
}

TEST(Messages, GoOnWhileTheirRanksAreInCollectives) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    constexpr std::size_t kBytes = 2000000;
    const std::vector<std::byte> own = content(group.rank, 1, kBytes);
    std::vector<std::byte> got(kBytes);
    if (group.rank == 0) {
      const Request send = communicator.isend(std::span(own), 1);
      communicator.barrier();  // Rank 1 comes here only with the message.
      send.wait();
    } else if (group.rank == 1) {
      EXPECT_EQ(communicator.recv(std::span(got), 0).bytes, kBytes);
      EXPECT_EQ(got, content(0, 1, kBytes));
      communicator.barrier();
    } else {
      communicator.barrier();
    }
    if (group.rank == 2) {
      const Request receive = communicator.irecv(std::span(got), 1);
      communicator.barrier();  // Rank 1 comes here only when this rank has taken the message.
      receive.wait();
      EXPECT_EQ(got, content(1, 1, kBytes));
    } else {
      if (group.rank == 1) communicator.send(std::span(own), 2);
      communicator.barrier();
    }
  });
}

TEST(Messages, ToOneself) {
  for (const int size : {1, 2})
    run_ranks(size, [size](const JobGroup& group) {
      Communicator communicator(group);
      for (const std::size_t bytes : kMessageSizes) {
        const std::vector<std::byte> own = content(group.rank, 2, bytes);
        std::vector<std::byte> got(bytes);
        communicator.sendrecv(std::span(own), group.rank, std::span(got), group.rank);
        EXPECT_EQ(got, own);
        const Request send = communicator.isend(std::span(own), group.rank, 7);
        std::vector<std::byte> any_size;
        EXPECT_EQ(communicator.recv_any_size(any_size, kAnySource, 7).source, group.rank);
        EXPECT_EQ(any_size, own);
        send.wait();
      }
      const std::vector<std::byte> much(1 << 20);
      EXPECT_EQ(usage_error_of([&] { communicator.send(std::span(much), group.rank); }),
                "send: rank " + std::to_string(group.rank) +
                    " sends 1048576 bytes to itself and has not begun to receive them; use isend or sendrecv");
      std::vector<std::byte> got(1);
      EXPECT_EQ(usage_error_of([&] { communicator.recv(std::span(got), group.rank); }),
                "recv: rank " + std::to_string(group.rank) +
                    " waits for a message from itself that it has not sent; use irecv or sendrecv");
      if (size == 1) {
        EXPECT_THROW(communicator.recv(std::span(got), kAnySource), UsageError);
      }
      communicator.barrier();
    });
}

TEST(Messages, ThatAreTooLongAreErrorsOnBothSides) {
  for (const std::size_t bytes : {std::size_t{8}, std::size_t{100}, std::size_t{100000}})
    run_ranks(2, [bytes](const JobGroup& group) {
      Communicator communicator(group);
      std::vector<std::byte> data(group.rank == 0 ? bytes : bytes - 1);
      std::string message;
      try {
        if (group.rank == 0) {
          communicator.send(std::span(data), 1, 3);
          communicator.barrier();
        } else {
          communicator.recv(std::span(data), 0, 3);
        }
        ADD_FAILURE() << "no error";
      } catch (const CollectiveMismatch& error) {
        message = error.what();
      }
      EXPECT_NE(message.find("rank 1 receives at most " + std::to_string(bytes - 1) + " bytes at "), std::string::npos)
          << message;
      EXPECT_NE(message.find("rank 0 sends " + std::to_string(bytes) + " (tag 3) at "), std::string::npos) << message;
      EXPECT_NE(message.find("messages_test.cpp:"), std::string::npos) << message;
      EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
      EXPECT_THROW(communicator.send(std::span(data), 0), CollectiveMismatch);
    });
}

TEST(Messages, WithBadArgumentsAreUsageErrors) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    const std::span data(&value, 1);
    EXPECT_EQ(usage_error_of([&] { communicator.send(data, 2); }), "send: rank 2 is outside of the group's [0, 2)");
    EXPECT_EQ(usage_error_of([&] { communicator.send(data, kAnySource); }),
              "send: rank -1 is outside of the group's [0, 2)");
    EXPECT_EQ(usage_error_of([&] { communicator.recv(data, -2); }), "recv: rank -2 is outside of the group's [0, 2)");
    EXPECT_EQ(usage_error_of([&] { (void)communicator.isend(data, 0, -1); }), "send: tag -1 is negative");
    EXPECT_EQ(usage_error_of([&] { communicator.recv(data, 0, -5); }), "recv: tag -5 is negative");
    const P2POp batch[] = {P2POp::isend(std::as_bytes(data), 1 - group.rank), P2POp::isend({}, 9)};
    EXPECT_EQ(usage_error_of([&] { (void)communicator.batch_isend_irecv(batch); }),
              "send: rank 9 is outside of the group's [0, 2)");
    EXPECT_EQ(usage_error_of([] { Request().wait(); }),
              "this Request is empty: it was default-constructed or moved from");
    communicator.barrier();  // Nothing was sent and nothing is broken.
  });
}

TEST(Messages, FromAnySourceServeAll) {
  run_ranks(4, [](const JobGroup& group) {
    Communicator communicator(group);
    constexpr int kEach = 20;
    int value = group.rank;
    if (group.rank != 3)
      for (int i = 0; i < kEach; ++i) communicator.send(std::span(&value, 1), 3);
    communicator.barrier();
    if (group.rank != 3) return;
    std::vector<int> served(3);
    for (int i = 0; i < 9; ++i)
      ++served[static_cast<std::size_t>(communicator.recv(std::span(&value, 1), kAnySource).source)];
    EXPECT_EQ(served, (std::vector<int>{3, 3, 3}));
  });
}

}  // namespace
}  // namespace retinue::test
