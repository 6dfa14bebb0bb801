// Random sequences of messages and collectives, compared with what a list of all messages says.
#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

struct Planned {
  int number;
  int source;
  int destination;
  int tag;
  std::size_t bytes;
  bool in_job;
};

std::byte byte_of(const Planned& message, std::size_t i) {
  return static_cast<std::byte>(i * 17 + i / 253 + static_cast<std::size_t>(message.number) * 29);
}

/// The same on all ranks.
std::vector<Planned> plan(std::mt19937& random, int size) {
  constexpr std::size_t kLargest[] = {0, 30, 41, 3000, 17000, 70000, 600000};
  std::vector<Planned> messages(static_cast<std::size_t>(random() % 40));
  for (std::size_t i = 0; i < messages.size(); ++i)
    messages[i] = {.number = static_cast<int>(i),
                   .source = static_cast<int>(random() % static_cast<unsigned>(size)),
                   .destination = static_cast<int>(random() % static_cast<unsigned>(size)),
                   .tag = static_cast<int>(random() % 3),
                   .bytes = random() % (kLargest[random() % std::size(kLargest)] + 1),
                   .in_job = random() % 4 == 0};
  return messages;
}

/// One rank's part in one plan.
class Part {
 public:
  Part(Communicator& communicator, const JobGroup& group, std::vector<Planned> messages, std::mt19937& own_random)
      : communicator_(communicator), group_(group), messages_(std::move(messages)), random_(own_random) {}

  void run() {
    std::vector<const Planned*> mine;
    for (const Planned& message : messages_)
      if (message.source == group_.rank || message.destination == group_.rank) mine.push_back(&message);
    shuffle(mine);
    for (const Planned* message : mine) {
      if (message->source == group_.rank) send(*message);
      if (message->destination == group_.rank) receive(*message);
    }
    int sum = 1;
    communicator_.all_reduce(std::span(&sum, 1));
    EXPECT_EQ(sum, communicator_.size());
    std::shuffle(requests_.begin(), requests_.end(), random_);
    for (const Request& request : requests_) request.wait();
    for (const Receive& receive : receives_) check(receive);
    for (const BlockHandle& block : blocks_) group_.memory->release(block);
  }

 private:
  struct Receive {
    Request request;
    std::vector<std::byte> buffer;
    int source;
    int tag;
  };

  /// Shuffled, except that messages between two ranks with one tag keep their order.
  void shuffle(std::vector<const Planned*>& mine) {
    std::shuffle(mine.begin(), mine.end(), random_);
    using Class = std::tuple<int, int, int>;
    std::map<Class, std::vector<const Planned*>> classes;
    const auto class_of = [](const Planned* m) { return Class(m->source, m->destination, m->tag); };
    for (const Planned* message : mine) classes[class_of(message)].push_back(message);
    for (auto& [key, list] : classes)
      std::sort(list.begin(), list.end(), [](const Planned* a, const Planned* b) { return a->number > b->number; });
    for (const Planned*& message : mine) {
      auto& list = classes[class_of(message)];
      message = list.back();
      list.pop_back();
    }
  }

  void send(const Planned& message) {
    Bytes data;
    if (message.in_job && message.bytes > 0) {
      blocks_.push_back(group_.memory->allocate(message.bytes));
      data = {group_.memory->at(blocks_.back().offset), message.bytes};
    } else {
      data = sent_.emplace_back(message.bytes);
    }
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = byte_of(message, i);
    requests_.push_back(communicator_.isend(data, message.destination, message.tag));
  }

  void receive(const Planned& message) {
    Receive receive{
        .request = {}, .buffer = std::vector<std::byte>(600001), .source = message.source, .tag = message.tag};
    receive.request = communicator_.irecv(std::span(receive.buffer), message.source, message.tag);
    requests_.push_back(receive.request);
    receives_.push_back(std::move(receive));
  }

  void check(const Receive& receive) {
    const Received received = receive.request.received();
    ASSERT_EQ(received.source, receive.source);
    ASSERT_EQ(received.tag, receive.tag);
    int& next = next_[{received.source, received.tag}];
    const Planned* expected = nullptr;
    for (const Planned& message : messages_)
      if (expected == nullptr && message.number >= next && message.source == received.source &&
          message.destination == group_.rank && message.tag == received.tag)
        expected = &message;
    ASSERT_NE(expected, nullptr);
    next = expected->number + 1;
    ASSERT_EQ(received.bytes, expected->bytes);
    for (std::size_t i = 0; i < received.bytes; ++i)
      ASSERT_EQ(receive.buffer[i], byte_of(*expected, i)) << "byte " << i << " of message " << expected->number;
  }

  Communicator& communicator_;
  const JobGroup& group_;
  std::vector<Planned> messages_;
  std::mt19937& random_;
  std::vector<Request> requests_;
  std::list<std::vector<std::byte>> sent_;
  std::vector<BlockHandle> blocks_;
  std::vector<Receive> receives_;
  std::map<std::pair<int, int>, int> next_;
};

class MessageModel : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MessageModel, testing::Values(1, 2, 3, 4, 8, 16));

TEST_P(MessageModel, AgreesWithRandomPlans) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::mt19937 common(7);
    std::mt19937 own(static_cast<unsigned>(group.rank) + 100);
    for (int i = 0; i < (is_sanitized() ? 20 : 100); ++i)
      Part(communicator, group, plan(common, communicator.size()), own).run();
  });
}

}  // namespace
}  // namespace retinue::test
