// A rank is killed while others need it: they must notice, and the killed one must be named as the cause.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "ipc/memory/context_table.h"
#include "retinue/collective/communicator.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/wait_until.h"

using retinue::Communicator;
using retinue::ProcessExitedException;
using retinue::RankContext;
using retinue::RankEnd;
using retinue::test::EachStartMethod;

namespace {

void die_somewhere(RankContext& context, const std::string& where) {
  const bool dies = context.rank() == 1;
  if (where == "before its first call" && dies) raise(SIGKILL);
  Communicator group(context.world());
  std::vector<float> data(100'000, 1.0f);
  for (int call = 0;; ++call) {
    if (call == 1000 && dies) raise(SIGKILL);
    if (where == "all_reduce") {
      group.all_reduce(std::span(data));
    } else {
      group.barrier();
    }
  }
}

TEST_P(EachStartMethod, AKilledRankIsNamedAndTheOthersDoNotHang) {
  for (const std::string where : {"before its first call", "barrier", "all_reduce"}) {
    try {
      retinue::spawn<die_somewhere>({.nprocs = 3, .start_method = GetParam()}, where);
      ADD_FAILURE() << "spawn returned although a rank was killed: " << where;
    } catch (const ProcessExitedException& error) {
      EXPECT_EQ(error.rank(), 1) << error.what();
      EXPECT_EQ(error.signal(), SIGKILL) << error.what();
      for (const int other : {0, 2}) {
        const retinue::RankOutcome& outcome = error.outcomes()[static_cast<std::size_t>(other)];
        const bool noticed = outcome.end == RankEnd::kRaised && outcome.consequence;
        EXPECT_TRUE(noticed || outcome.end == RankEnd::kStopped) << error.what();
      }
    }
  }
}

void return_early(RankContext& context) {
  Communicator group(context.world());
  group.barrier();
  if (context.rank() == 1) return;
  try {
    group.barrier();
  } catch (const retinue::PeerLost& error) {
    if (error.ranks() != std::vector<int>{1}) throw std::logic_error("another rank was blamed");
    return;
  }
  throw std::logic_error("a barrier passed without rank 1");
}

TEST_P(EachStartMethod, ARankThatReturnsEarlyIsPeerLostAndNoFailure) {
  EXPECT_NO_THROW(retinue::spawn<return_early>({.nprocs = 2, .start_method = GetParam()}));
}

void meet_in_different_calls(RankContext& context) {
  Communicator group(context.world());
  double value = 1.0;
  if (context.rank() == 0) {
    group.barrier();
  } else {
    group.all_reduce(std::span(&value, 1));
  }
}

TEST_P(EachStartMethod, DifferentCallsNameBothPlaces) {
  try {
    retinue::spawn<meet_in_different_calls>({.nprocs = 2, .start_method = GetParam()});
    ADD_FAILURE() << "a barrier met an all_reduce";
  } catch (const retinue::ProcessRaisedException& error) {
    EXPECT_EQ(error.outcome().type, "retinue::CollectiveMismatch");
    const std::string text = error.outcome().message;
    EXPECT_NE(text.find("barrier"), std::string::npos) << text;
    EXPECT_NE(text.find("all_reduce"), std::string::npos) << text;
    EXPECT_NE(text.find("rank_death_main_test.cpp:"), std::string::npos) << text;
  }
}

void do_nothing(RankContext&) {}

/// Starts a rank of its own, with a message as argument, and dies before it has been started, or before anybody heard
/// of its end.
void start_one_and_die(RankContext& context, bool dies_first) {
  if (dies_first) setenv("RETINUE_FAULT", "program.request=kill", 1);
  const retinue::ProcessContext started = retinue::spawn<do_nothing>({.nprocs = 1, .join = false});
  const retinue::JobMemory& memory = *context.world().memory;
  const auto has_ended = [&](std::uint32_t index) {
    const retinue::ContextRecord& record = retinue::context_record(memory, index);
    return record.parent_slot == memory.own_slot() && record.state == retinue::ContextRecord::kEnded;
  };
  retinue::test::wait_until([&] { return has_ended(0) || has_ended(1); });
  raise(SIGKILL);
}

std::size_t reserved_entries(const retinue::JobMemory& memory) {
  std::size_t count = 0;
  for (std::uint32_t i = 0; i < memory.header().context_end; ++i)
    count += memory.header().contexts[i].reserved_by == 0 ? 0 : 1;
  for (std::uint32_t i = 0; i < memory.header().process_end; ++i)
    count += memory.header().processes[i].reserved_by == 0 ? 0 : 1;
  return count;
}

TEST_P(EachStartMethod, WhatAKilledRankHadStartedIsGivenBack) {
  const retinue::JobMemory& memory = *retinue::JobMemory::current();
  for (const bool dies_first : {true, false}) {
    const std::size_t before = memory.allocated_bytes();
    EXPECT_THROW(retinue::spawn<start_one_and_die>({.nprocs = 1, .start_method = GetParam()}, dies_first),
                 ProcessExitedException);
    EXPECT_EQ(reserved_entries(memory), 0u) << dies_first;
    EXPECT_EQ(memory.allocated_bytes(), before) << dies_first;
  }
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

}  // namespace
