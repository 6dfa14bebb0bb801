// Also kills a process at each point of what it does with a pipe that somebody polls. Its sources are compiled here
// once more, with these points in them.
#define RETINUE_CRASH_POINTS
#include "ipc/memory/poller.cpp"          // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/channel_poll.cpp"     // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/message_channel.cpp"  // NOLINT(bugprone-suspicious-include)
#include "ipc/queue/pipe_end.cpp"         // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/message_ring.cpp"      // NOLINT(bugprone-suspicious-include)
#include "ipc/ring/ring_slots.cpp"        // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>

#include <cereal/types/map.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/vector.hpp>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "ipc/poll_fixture.h"
#include "retinue/ipc/pipe.h"
#include "retinue/ipc/queue.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

using test::kPatience;

class PipeTest : public PollTest {};

TEST_F(PipeTest, SendsBothWays) {
  auto [here, there] = Pipe<std::string>::create();
  here.send("ping");
  EXPECT_EQ(there.recv(), "ping");
  there.send("pong");
  EXPECT_EQ(here.recv(kPatience), "pong");
  EXPECT_FALSE(here.recv(0ns).has_value());
  EXPECT_FALSE(here.recv(1ms).has_value());
  EXPECT_TRUE(here.readable() && here.writable());
}

TEST_F(PipeTest, SendsOneWayWhereItIsNotDuplex) {
  auto [receiver, sender] = Pipe<int>::create({.duplex = false});
  EXPECT_TRUE(receiver.readable() && sender.writable());
  EXPECT_FALSE(receiver.writable() || sender.readable());
  sender.send(7);
  EXPECT_EQ(receiver.recv(), 7);
  EXPECT_THROW(receiver.send(1), UsageError);
  EXPECT_THROW(sender.recv(), UsageError);
  EXPECT_THROW(sender.poll(), UsageError);
  EXPECT_THROW(sender.descriptor(), UsageError);
}

TEST_F(PipeTest, CarriesManyTypes) {
  auto [here, there] = Pipe<std::vector<float>>::create();
  for (const std::size_t count : {0u, 1u, 100u, 100'000u}) {
    const std::vector<float> row(count, 2.5f);
    here.send(row);
    EXPECT_EQ(there.recv(), row);
    here.send(std::span(row));
    EXPECT_EQ(there.recv(), row);
  }
  auto [mine, yours] = Pipe<std::map<std::string, int>>::create();
  const std::map<std::string, int> map{{"a", 1}, {"b", 2}};
  mine.send(map);
  EXPECT_EQ(yours.recv(), map);
  auto [yes, no] = Pipe<bool>::create({.capacity = 1});
  yes.send(true);
  EXPECT_FALSE(yes.send(false, 1ms));
  EXPECT_TRUE(no.recv());
}

TEST_F(PipeTest, EndsWithTheLastHolderOfTheOtherEnd) {
  auto [here, there] = Pipe<int>::create();
  Connection<int> copy = there;
  there.send(1);
  there.close();
  EXPECT_TRUE(there.closed());
  EXPECT_THROW(there.send(1), UsageError);
  copy.send(2);
  here.send(3);
  copy.close();
  EXPECT_EQ(here.recv(), 1);
  EXPECT_EQ(here.recv(), 2);
  EXPECT_TRUE(here.poll());
  EXPECT_THROW(here.recv(), Closed);
  EXPECT_THROW(here.recv(0ns), Closed);
  EXPECT_THROW(here.send(4), Closed);
}

TEST_F(PipeTest, TellsThoseWhoWait) {
  auto [here, there] = Pipe<int>::create({.capacity = 1});
  here.send(1);
  std::thread sender([end = here]() mutable { EXPECT_THROW(end.send(2), Closed); });
  std::thread receiver([end = here]() mutable { EXPECT_THROW(end.recv(), Closed); });
  std::thread poller([end = here]() mutable { EXPECT_TRUE(end.poll(kPatience)); });
  there.close();
  sender.join();
  receiver.join();
  poller.join();
}

TEST_F(PipeTest, StaysOpenInAMessage) {
  Connection<int> here;
  Queue<Connection<int>> queue({.capacity = 2});
  {
    auto [first, second] = Pipe<int>::create();
    here = first;
    queue.put(second);
  }
  here.send(5);
  Connection<int> there = queue.get();
  EXPECT_EQ(there.recv(kPatience), 5);
  queue.put(there);
  there.close();
  EXPECT_FALSE(here.recv(50ms).has_value());
  queue = {};  // With the message.
  EXPECT_THROW(here.recv(), Closed);
}

TEST_F(PipeTest, RefusesWhatCannotBe) {
  EXPECT_THROW(Pipe<int>::create({.capacity = 0}), UsageError);
  Connection<int> none;
  EXPECT_FALSE(none);
  EXPECT_THROW(none.send(1), UsageError);
  auto [here, there] = Pipe<int>::create();
  const detail::Encoded encoded = detail::encode_value(here);
  Connection<float> other;
  EXPECT_THROW(detail::decode_value(encoded.bytes, other), UsageError);
  Queue<int> queue;
  EXPECT_THROW(detail::decode_value(encoded.bytes, queue), UsageError);
}

TEST_F(PipeTest, HasADescriptorThatSaysWhatPollSays) {
  auto [here, there] = Pipe<int>::create();
  const int fd = here.descriptor();
  EXPECT_EQ(here.descriptor(), fd);
  EXPECT_FALSE(becomes_readable(fd, 0ms));
  for (int i = 0; i < 3; ++i) {
    there.send(1);
    there.send(2);
    EXPECT_TRUE(becomes_readable(fd, 0ms));
    EXPECT_EQ(here.recv(), 1);
    EXPECT_TRUE(becomes_readable(fd, 0ms)) << "there is another one";
    EXPECT_EQ(here.recv(), 2);
    EXPECT_FALSE(becomes_readable(fd, 0ms));
    EXPECT_FALSE(here.poll());
  }
  there.close();
  EXPECT_TRUE(becomes_readable(fd, 0ms));
  EXPECT_THROW(here.recv(), Closed);
  EXPECT_TRUE(becomes_readable(fd, 0ms));
  EXPECT_TRUE(here.poll());
}

TEST_F(PipeTest, HasADescriptorForWhatIsThereAlready) {
  auto [here, there] = Pipe<int>::create();
  there.send(1);
  EXPECT_TRUE(becomes_readable(here.descriptor(), 0ms));
  auto [end, gone] = Pipe<int>::create();
  gone.close();
  EXPECT_TRUE(becomes_readable(end.descriptor(), 0ms));
}

TEST_F(PipeTest, WakesWhoPollsFromAnotherProcess) {
  auto [here, there] = Pipe<int>::create();
  const int fd = here.descriptor();
  constexpr int kRounds = 200;
  const Victim victim = start_victim(0, [&here, there = there]() mutable {
    here.close();
    for (int i = 0; i < kRounds; ++i) {
      there.send(i);
      if (i % 3 == 0) there.recv();
    }
  });
  there.close();
  int next = 0;
  while (next < kRounds) {
    ASSERT_TRUE(becomes_readable(fd, kPatience));
    while (const auto message = here.recv(0ns)) {
      EXPECT_EQ(*message, next++);
      if (*message % 3 == 0) here.send(0);
      if (next == kRounds) break;
    }
  }
  EXPECT_TRUE(bury(victim));
  ASSERT_TRUE(becomes_readable(fd, kPatience));
  EXPECT_THROW(here.recv(), Closed);
}

TEST_F(PipeTest, NoticesThatAllHoldersAreDead) {
  auto [here, there] = Pipe<int>::create({.capacity = 2});
  const Victim victim = start_victim(0, [&, there = there]() mutable {
    here.close();
    there.send(1);
    pause();
  });
  there.close();
  EXPECT_EQ(here.recv(kPatience), 1);
  const int fd = here.descriptor();
  EXPECT_FALSE(becomes_readable(fd, 0ms));
  kill(victim.pid, SIGKILL);
  bury(victim);
  EXPECT_TRUE(becomes_readable(fd, kPatience));
  EXPECT_THROW(here.recv(kPatience), Closed);
  EXPECT_THROW(here.send(1), Closed);
}

TEST_F(PipeTest, SendsOnlyToThoseWhoLive) {
  auto [here, there] = Pipe<int>::create({.capacity = 2});
  const Victim victim = start_victim(0, [&here] {
    here.close();
    pause();
  });
  there.close();
  EXPECT_TRUE(here.send(1, 0ns));
  EXPECT_TRUE(here.send(2, 0ns));
  kill(victim.pid, SIGKILL);
  bury(victim);
  EXPECT_THROW(here.send(3), Closed);
}

TEST_F(PipeTest, HasADescriptorForEachOfSomeProcesses) {
  auto [here, there] = Pipe<int>::create();
  here.descriptor();
  std::vector<Connection<int>> others;
  for (std::size_t i = 1; i < RingHeader::kMostPollers; ++i) {
    detail::decode_value(detail::encode_value(here).bytes, others.emplace_back());  // As another process gets it.
    others.back().descriptor();
  }
  Connection<int> one_more;
  detail::decode_value(detail::encode_value(here).bytes, one_more);
  EXPECT_THROW(one_more.descriptor(), UsageError);
  others.pop_back();
  const int fd = one_more.descriptor();
  there.send(1);
  EXPECT_TRUE(becomes_readable(fd, 0ms));
  EXPECT_TRUE(becomes_readable(here.descriptor(), 0ms));
  others.pop_back();
  // In a fork of its process it makes another one.
  EXPECT_TRUE(run_victim(0, [&here, &there] {
    const int own = here.descriptor();
    here.recv();
    if (becomes_readable(own, 0ms)) _exit(1);
    there.send(2);
    if (!becomes_readable(own, 0ms)) _exit(1);
    here.recv();
  }));
  EXPECT_TRUE(becomes_readable(fd, 0ms)) << "the fork took the byte";
}

TEST_F(PipeTest, SenderIsKilledAnywhereWhileTheOtherPolls) {
  for (long point = 1;; ++point) {
    SCOPED_TRACE("point " + std::to_string(point));
    new (progress_.get()) Progress();
    bool came_through = false;
    {
      auto [here, there] = Pipe<std::vector<int>>::create();
      const int fd = here.descriptor();
      EXPECT_FALSE(becomes_readable(fd, 0ms));
      // This process holds the sending end too: the pipe stays open.
      came_through = bury(start_victim(point, [this, &there = there] {
        for (const std::size_t count : {3u, 1000u}) {
          there.send(std::vector<int>(count, 1));
          ++progress_->put;
        }
      }));
      int got = 0;
      while (becomes_readable(fd, 0ms))
        if (here.recv(0ns)) ++got;
      EXPECT_GE(got, progress_->put);
      EXPECT_LE(got, progress_->put + 1);
      EXPECT_FALSE(here.recv(50ms).has_value()) << "there was a message, but the descriptor did not tell";
      there.send({1});
      EXPECT_TRUE(becomes_readable(fd, 0ms));
    }
    EXPECT_EQ(memory_->allocated_bytes(), 0u);
    if (came_through || HasFailure()) {
      EXPECT_GE(point, 12);
      break;
    }
  }
}

}  // namespace
}  // namespace retinue
