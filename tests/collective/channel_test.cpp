// A channel between two threads, so that ThreadSanitizer sees its algorithm.
#include "collective/board/channel.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "support/ranks.h"

namespace retinue::test {
namespace {

class ChannelTest : public testing::TestWithParam<int> {
 protected:
  ChannelTest() { std::memset(static_cast<void*>(memory_.get()), 0, sizeof(Channel)); }

  struct Free {
    void operator()(Channel* channel) const { ::operator delete(channel, std::align_val_t(128)); }
  };

  std::size_t space_ = Channel::space_bytes(GetParam());
  std::unique_ptr<Channel, Free> memory_{
      static_cast<Channel*>(::operator new(Channel::bytes_for(GetParam()), std::align_val_t(128)))};
};
INSTANTIATE_TEST_SUITE_P(GroupSizes, ChannelTest, testing::Values(2, 16, 64));

std::size_t random_bytes(std::mt19937& random, std::size_t largest) {
  return random() % 3 == 0 ? random() % 48 : random() % (largest + 1);
}

TEST_P(ChannelTest, BringsAllInOrderAndKeepsWhatIsNotTaken) {
  ChannelSender sender(*memory_, space_);
  ChannelReceiver receiver(*memory_);
  constexpr int kCount = is_sanitized() ? 2000 : 20000;
  std::thread producer([&] {
    std::mt19937 random(1);
    std::vector<std::byte> data(space_);
    for (int i = 0; i < kCount; ++i) {
      const std::size_t bytes = random_bytes(random, sender.piece_bytes());
      std::fill_n(data.begin(), bytes, static_cast<std::byte>(i));
      while (!sender.try_post({.tag = i, .bytes = bytes, .data = {data.data(), bytes}, .site = {"a.cpp", 7}}))
        sched_yield();
    }
  });
  std::mt19937 random(1);
  for (int i = 0; i < kCount; ++i) {
    const Envelope* envelope = nullptr;
    while ((envelope = receiver.peek()) == nullptr) sched_yield();
    const std::size_t bytes = random_bytes(random, sender.piece_bytes());
    ASSERT_EQ(envelope->tag, i);
    ASSERT_EQ(envelope->bytes, bytes);
    EXPECT_EQ(envelope->kind, bytes <= kEnvelopeBytes ? EnvelopeKind::kInline : EnvelopeKind::kStaged);
    const ConstBytes data = receiver.data_of(*envelope);
    ASSERT_EQ(std::count(data.begin(), data.end(), static_cast<std::byte>(i)), static_cast<std::ptrdiff_t>(bytes));
    EXPECT_EQ(read_site(envelope->site).line, 7u);
    receiver.take();
  }
  EXPECT_EQ(receiver.peek(), nullptr);
  producer.join();
}

TEST_P(ChannelTest, BringsAnswersBack) {
  ChannelSender sender(*memory_, space_);
  ChannelReceiver receiver(*memory_);
  constexpr std::uint64_t kCount = is_sanitized() ? 20000 : 300000;
  std::thread answerer([&] {
    for (std::uint64_t id = 1; id <= kCount; ++id)
      while (!receiver.try_answer(id, id % 2 == 0 ? AnswerKind::kTaken : AnswerKind::kSendPieces)) sched_yield();
  });
  for (std::uint64_t id = 1; id <= kCount;) {
    const auto answer = sender.next_answer();
    if (!answer) {
      sched_yield();
      continue;
    }
    ASSERT_EQ(answer->id, id);
    ASSERT_EQ(answer->kind, id % 2 == 0 ? AnswerKind::kTaken : AnswerKind::kSendPieces);
    ++id;
  }
  EXPECT_FALSE(sender.next_answer());
  answerer.join();
}

TEST_P(ChannelTest, TakesNoMoreThanItHasRoomFor) {
  ChannelSender sender(*memory_, space_);
  ChannelReceiver receiver(*memory_);
  const std::vector<std::byte> piece(sender.piece_bytes());
  const auto post = [&] { return sender.try_post({.bytes = piece.size(), .data = piece}); };
  const std::size_t pieces = space_ / piece.size();
  for (std::size_t i = 0; i < pieces; ++i) EXPECT_TRUE(post());
  EXPECT_FALSE(post());
  // What needs no space still has an envelope.
  for (std::uint64_t i = pieces; i < kEnvelopes; ++i) EXPECT_TRUE(sender.try_post({.tag = 5}));
  EXPECT_FALSE(sender.try_post({.tag = 5}));
  receiver.take();
  EXPECT_TRUE(post());
  EXPECT_FALSE(post());
}

}  // namespace
}  // namespace retinue::test
