#include "retinue/collective/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

/// The world ranks of a group's members, in the group's order, as its collectives see them.
std::vector<int> members_of(Communicator& group, int world_rank) {
  std::vector<int> members(static_cast<std::size_t>(group.size()));
  group.all_gather(&world_rank, members.data(), sizeof world_rank);
  return members;
}

TEST(Split, ByColourAndKey) {
  run_ranks(5, [](const JobGroup& world) {
    Communicator parent(world);
    const auto group = split(parent, {.color = world.rank % 2, .key = -world.rank});
    ASSERT_TRUE(group.has_value());
    Communicator communicator(*group);
    EXPECT_EQ(members_of(communicator, world.rank),
              world.rank % 2 == 0 ? (std::vector<int>{4, 2, 0}) : (std::vector<int>{3, 1}));
    parent.barrier();  // Which goes on beside its parts.
  });
}

TEST(Split, EqualKeysKeepTheParentsOrder) {
  run_ranks(4, [](const JobGroup& world) {
    Communicator parent(world);
    Communicator communicator(*split(parent, {.color = 0, .key = world.rank == 3 ? -1 : 7}));
    EXPECT_EQ(members_of(communicator, world.rank), (std::vector<int>{3, 0, 1, 2}));
  });
}

TEST(Split, NoColourIsNoGroup) {
  run_ranks(3, [](const JobGroup& world) {
    Communicator parent(world);
    const auto group = split(parent, {.color = world.rank == 1 ? kNoColor : 5, .name = "odd ones out"});
    EXPECT_EQ(group.has_value(), world.rank != 1);
    if (!group) return;
    EXPECT_NE(group->name.find("odd ones out"), std::string::npos) << group->name;
    Communicator communicator(*group);
    EXPECT_EQ(members_of(communicator, world.rank), (std::vector<int>{0, 2}));
  });
}

TEST(Split, ListedRanksAreSorted) {
  run_ranks(4, [](const JobGroup& world) {
    Communicator parent(world);
    const auto group = new_group(parent, std::vector<int>{3, 1, 2});
    EXPECT_EQ(group.has_value(), world.rank != 0);
    EXPECT_FALSE(new_group(parent, {}).has_value());
    if (!group) return;
    Communicator communicator(*group);
    EXPECT_EQ(members_of(communicator, world.rank), (std::vector<int>{1, 2, 3}));
  });
}

TEST(Split, SeveralListsMakeSeveralGroups) {
  run_ranks(5, [](const JobGroup& world) {
    Communicator parent(world);
    const auto group = new_subgroups(parent, std::vector<std::vector<int>>{{4, 0}, {1, 3}});
    EXPECT_EQ(group.has_value(), world.rank != 2);
    if (!group) return;
    Communicator communicator(*group);
    EXPECT_EQ(members_of(communicator, world.rank),
              world.rank % 2 == 0 ? (std::vector<int>{0, 4}) : (std::vector<int>{1, 3}));
  });
}

/// The same members, so only the names keep them apart.
TEST(Split, GroupsOfTheSameMembersAreApart) {
  run_ranks(2, [](const JobGroup& world) {
    Communicator one(world);
    Communicator two(
        {.memory = world.memory, .name = world.name, .rank = world.rank, .process_slots = world.process_slots});
    const JobGroup of_one = *split(one);
    const JobGroup again = *split(one);
    const JobGroup of_two = *split(two);
    EXPECT_NE(of_one.name, again.name);
    EXPECT_NE(of_one.name, of_two.name);
  });
}

TEST(Split, OfSplitsOfSplits) {
  run_ranks(2, [](const JobGroup& world) {
    JobGroup group = world;
    for (int depth = 0; depth < 12; ++depth) {
      Communicator parent(group);
      group = *split(parent, {.name = "a name of some forty bytes, as some have"});
    }
    Communicator last(group);
    EXPECT_EQ(members_of(last, world.rank), (std::vector<int>{0, 1}));
  });
}

TEST(Split, WhatMakesNoSenseOnOneIsAnErrorOnAll) {
  run_ranks(3, [](const JobGroup& world) {
    Communicator parent(world);
    const auto says = [&](const std::string& own, const std::string& others, auto call) {
      const std::string text = usage_error_of(call);
      EXPECT_NE(text.find(world.rank == 1 ? own : others), std::string::npos) << text;
    };
    says("color -2", "rank 1 passed", [&] { split(parent, {.color = world.rank == 1 ? -2 : 0}); });
    const std::string name(world.rank == 1 ? 70 : 7, 'n');
    says("70 bytes", "rank 1 passed", [&] { split(parent, {.name = name}); });
    const std::vector<int> ranks = world.rank == 1 ? std::vector<int>{0, 3} : std::vector<int>{0, 2};
    says("rank 3 is outside", "rank 1 passed", [&] { new_group(parent, ranks); });
    const std::vector<int> twice = world.rank == 1 ? std::vector<int>{2, 2} : std::vector<int>{0, 2};
    says("rank 2 is listed twice", "rank 1 passed", [&] { new_group(parent, twice); });
    const std::vector<int> other = world.rank == 1 ? std::vector<int>{0, 1} : std::vector<int>{0, 2};
    says("ranks 0 and 1 passed different lists", "ranks 0 and 1 passed", [&] { new_group(parent, other); });
    EXPECT_TRUE(split(parent).has_value());
  });
}

/// Many overlapping groups, made in a random order and all used in another one, the same on all ranks.
TEST(Split, ManyOverlappingGroupsOfEightRanks) {
  constexpr int kRanks = 8;
  constexpr int kGroups = is_sanitized() ? 12 : 40;
  run_ranks(kRanks, [](const JobGroup& world) {
    Communicator parent(world);
    std::mt19937 random(4);
    std::vector<std::vector<int>> lists;
    std::vector<std::optional<Communicator>> own;
    for (int i = 0; i < kGroups; ++i) {
      std::vector<int> ranks(kRanks);
      std::iota(ranks.begin(), ranks.end(), 0);
      std::shuffle(ranks.begin(), ranks.end(), random);
      ranks.resize(1 + random() % kRanks);
      std::optional<JobGroup> group = new_group(parent, ranks);
      std::sort(ranks.begin(), ranks.end());
      lists.push_back(ranks);
      own.emplace_back();
      if (group) own.back().emplace(*group);
    }
    std::vector<std::size_t> order(lists.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (int round = 0; round < 3; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      for (const std::size_t i : order) {
        if (!own[i]) continue;
        EXPECT_EQ(members_of(*own[i], world.rank), lists[i]) << i;
      }
    }
  });
}

}  // namespace
}  // namespace retinue::test
