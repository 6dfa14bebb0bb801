#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "collective/exchange_model.h"
#include "collective/mixed_calls.h"
#include "retinue/collective/request.h"

namespace retinue::test {

/// Random collectives and messages on groups that overlap, each compared with the model: blocking ones, some that are
/// begun and finished later, and messages that are under way meanwhile.
///
/// All ranks go through one sequence of steps, so that no order of waits can stand still, and take part in those of
/// their groups.
class GroupMix {
 public:
  /// Blocking: until all ranks of `world` have made theirs with the same seed. `options`: of this rank in all groups.
  GroupMix(const JobGroup& world, unsigned seed, const CommunicatorOptions& options = {})
      : world_rank_(world.rank), common_(seed) {
    for (const std::vector<int>& ranks : choose_groups(static_cast<int>(world.process_slots.size()))) {
      const auto own = std::find(ranks.begin(), ranks.end(), world.rank);
      groups_.emplace_back();
      if (own == ranks.end()) continue;
      JobGroup group = world;
      group.name += fmt::format("/{}", groups_.size());
      group.rank = static_cast<int>(own - ranks.begin());
      group.process_slots.clear();
      for (const int rank : ranks) group.process_slots.push_back(world.process_slots[static_cast<std::size_t>(rank)]);
      groups_.back().communicator = std::make_unique<Communicator>(group, options);
    }
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
    for (Group& group : groups_) settle(group);
    settle_messages();
  }

  /// All ranks, in their order.
  Communicator& world() { return *groups_.front().communicator; }

 private:
  struct Group {
    std::unique_ptr<Communicator> communicator;  ///< Null where this rank is no member.
    /// In the order in which they were; all end in it.
    std::deque<std::unique_ptr<BegunExchange>> begun = {};
  };
  struct Message {
    unsigned number;
    int source;
    std::vector<std::byte> data;
    bool is_received;
    Request request;
  };

  std::vector<std::vector<int>> choose_groups(int size) {
    std::vector<int> all(static_cast<std::size_t>(size));
    std::iota(all.begin(), all.end(), 0);
    const auto half = all.begin() + size / 2;
    std::vector<std::vector<int>> groups = {
        all, {all.rbegin(), all.rend()}, {all.begin(), half + 1}, {half, all.end()}};
    for (int i = 0; i < 4; ++i) {
      std::shuffle(all.begin(), all.end(), common_);
      groups.emplace_back(all.begin(), all.begin() + 1 + static_cast<int>(common_() % static_cast<unsigned>(size)));
    }
    return groups;
  }

  void step() {
    Group& group = groups_[common_() % groups_.size()];
    const unsigned what = common_() % 16;
    std::mt19937 random(common_());
    if (what == 0) return settle_messages();
    if (group.communicator == nullptr) return;
    if (what < 5) return begin_message(*group.communicator, random);
    if (what < 7) {
      begin_collective(group, random);
    } else if (what == 7) {
      settle(group);
    } else if (what == 8) {
      group.communicator->barrier();
      for (const auto& begun : group.begun) ASSERT_TRUE(begun->request().done());
    } else {
      exchange(*group.communicator, random);
    }
  }

  static ExchangeCase draw_case(unsigned size, std::mt19937& random) {
    ExchangeCase c{.kind = kDataKinds[random() % std::size(kDataKinds)], .count = random() % 40};
    if (random() % 4 == 0) c.count = random() % (random() % 4 == 0 ? 60000 : 5000) * 4 / (size + 4);
    c.input_place = kPlaces[random() % std::size(kPlaces)];
    c.output_place = kPlaces[random() % std::size(kPlaces)];
    c.in_place = random() % 2 == 0;
    c.root = static_cast<int>(random() % size);
    c.op = kOps[random() % std::size(kOps)];
    c.seed = random();
    return c;
  }

  static void exchange(Communicator& communicator, std::mt19937& random) {
    const unsigned way = random() % 16;
    if (way == 0) return check_coalesced(communicator, random);
    if (way == 1) return check_uneven(communicator, random);
    if (way == 2) return check_function(communicator, random);
    const ExchangeCase c = draw_case(static_cast<unsigned>(communicator.size()), random);
    if (!reduces(c.kind)) return check_exchange<std::uint8_t>(communicator, c);
    switch (random() % 5) {
      case 0:
        return check_exchange<Float16>(communicator, c);
      case 1:
        return check_exchange<std::int8_t>(communicator, c);
      case 2:
        return check_exchange<std::uint64_t>(communicator, c);
      case 3:
        return check_exchange<BFloat16>(communicator, c);
      default:
        return check_exchange<double>(communicator, c);
    }
  }

  static void begin_collective(Group& group, std::mt19937& random) {
    Communicator& ranks = *group.communicator;
    group.begun.push_back(
        std::make_unique<BegunExchange>(ranks, draw_case(static_cast<unsigned>(ranks.size()), random)));
    if (random() % 2 == 0) static_cast<void>(group.begun.back()->request().done());
  }

  static void settle(Group& group) {
    for (const auto& begun : group.begun) begun->check();
    group.begun.clear();
  }

  static std::byte byte_of(unsigned number, std::size_t i) {
    return static_cast<std::byte>(i * 17 + i / 253 + number * std::size_t{29});
  }

  void begin_message(Communicator& communicator, std::mt19937& random) {
    constexpr std::size_t kLargest[] = {0, 30, 41, 3000, 17000, 70000, 300000};
    const auto size = static_cast<unsigned>(communicator.size());
    const unsigned number = random();
    const int source = static_cast<int>(random() % size);
    const int destination = static_cast<int>(random() % size);
    const int tag = static_cast<int>(random() % 3);
    std::vector<std::byte> data(random() % (kLargest[random() % std::size(kLargest)] + 1));
    if (communicator.rank() == source) {
      std::vector<std::byte> sent(data.size());
      for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = byte_of(number, i);
      Request request = communicator.isend(std::span(sent), destination, tag);
      messages_.push_back({number, source, std::move(sent), false, std::move(request)});
    }
    if (communicator.rank() == destination) {
      Request request = communicator.irecv(std::span(data), source, tag);
      messages_.push_back({number, source, std::move(data), true, std::move(request)});
    }
  }

  /// In the order in which they were begun, as on all other ranks.
  void settle_messages() {
    for (const Message& message : messages_) {
      message.request.wait();
      if (!message.is_received) continue;
      ASSERT_EQ(message.request.received().source, message.source);
      ASSERT_EQ(message.request.received().bytes, message.data.size());
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < message.data.size(); ++i) wrong += message.data[i] != byte_of(message.number, i);
      ASSERT_EQ(wrong, 0u) << "of " << message.data.size() << " bytes, rank " << world_rank_;
    }
    messages_.clear();
  }

  int world_rank_;
  std::mt19937 common_;
  std::vector<Group> groups_;
  std::vector<Message> messages_;  ///< Last: they end before their communicators.
};

}  // namespace retinue::test
