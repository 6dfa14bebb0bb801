#include "retinue/collective/communicator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "support/ranks.h"

namespace retinue::test {
namespace {

void check_sum(Communicator& communicator, int value) {
  int sum = value;
  communicator.all_reduce(&sum, 1, Dtype::kInt32, ReduceOp::kSum);
  EXPECT_EQ(sum, value * communicator.size());
}

TEST(Communicator, KnowsItsPlace) {
  run_ranks(3, [](const JobGroup& group) {
    const Communicator communicator(group);
    EXPECT_EQ(communicator.rank(), group.rank);
    EXPECT_EQ(communicator.size(), 3);
    EXPECT_EQ(communicator.group().name, group.name);
  });
}

TEST(Communicator, ThatWasMovedFromIsNone) {
  run_ranks(1, [](const JobGroup& group) {
    Communicator first(group);
    Communicator second(std::move(first));
    int value = 0;
    EXPECT_THROW(first.barrier(), UsageError);  // NOLINT(bugprone-use-after-move)
    EXPECT_THROW(static_cast<void>(first.irecv(std::span(&value, 1), 0)), UsageError);
    EXPECT_THROW(first.set_timeout(std::chrono::seconds(1)), UsageError);
    first.interrupt();
    second.barrier();
  });
}

/// A process that a member forked by fork() is none: what it did would be the member's doing.
TEST(Communicator, IsOfNoUseInAFork) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    const Request receive = communicator.irecv(std::span(&value, 1), 1 - group.rank);
    const Request begun = communicator.start(CollectiveCall::barrier());
    const pid_t child = fork();
    if (child == 0) {
      const auto refused = [](auto call) {
        try {
          call();
        } catch (const UsageError& error) {
          return std::string(error.what()).find("is a fork() of rank") != std::string::npos;
        } catch (...) {
        }
        return false;
      };
      bool all =
          refused([&] { communicator.barrier(); }) && refused([&] { communicator.send(std::span(&value, 1), 0); });
      all = all && refused([&] { static_cast<void>(communicator.start(CollectiveCall::barrier())); });
      all = all && refused([&] { static_cast<void>(begun.done()); }) && refused([&] { begun.wait(); });
      all = all && refused([&] { receive.wait(); });
      all = all && refused([&] { Communicator another(group); });
      { Communicator dropped = std::move(communicator); }  // Takes no leave of the others.
      _exit(all ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    begun.wait();
    communicator.barrier();
    value = 7;
    const Request send = communicator.isend(std::span(&value, 1), 1 - group.rank);
    receive.wait();
    send.wait();
    check_sum(communicator, 3);
  });
}

TEST(Communicator, SeveralOfOneGroupShareNothing) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator first(group);
    Communicator second(group);
    for (int i = 0; i < 100; ++i) {
      check_sum(first, i);
      if (i % 3 == 0) check_sum(second, -i);
    }
  });
}

TEST(Communicator, CanBeMadeAgainAndAgain) {
  run_ranks(3, [](const JobGroup& group) {
    for (int i = 0; i < 200; ++i) {
      Communicator communicator(group);
      check_sum(communicator, i);
    }
    // All members must have left for the boards to be freed; a member that is still in its destructor holds the last.
    Communicator communicator(group);
    communicator.barrier();
    EXPECT_LE(group.memory->allocated_bytes(), std::size_t{8} << 20);
  });
}

TEST(Communicator, OfSubgroupsRunSideBySide) {
  run_ranks(4, [](const JobGroup& group) {
    JobGroup pair = group;
    const auto first = static_cast<std::size_t>(group.rank / 2 * 2);
    pair.process_slots = {group.process_slots[first], group.process_slots[first + 1]};
    pair.rank = group.rank % 2;
    pair.name = "pair " + std::to_string(group.rank / 2);
    Communicator all(group);
    Communicator two(pair);
    for (int i = 0; i < 200; ++i) {
      check_sum(two, i);
      if (group.rank < 2 || i % 4 == 0) check_sum(two, 2 * i);
      if (i % 50 == 0) check_sum(all, i);
    }
  });
}

TEST(Communicator, CanBeMoved) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator first(group);
    Communicator second = std::move(first);
    check_sum(second, 3);
    std::optional<Communicator> third(std::move(second));
    check_sum(*third, 4);
  });
}

TEST(Communicator, RefusesGroupsThatCannotBe) {
  run_ranks(1, [](const JobGroup& group) {
    JobGroup outside = group;
    outside.rank = 1;
    EXPECT_THROW(Communicator{outside}, UsageError);
    JobGroup nameless = group;
    nameless.name = std::string(1000, 'x');
    EXPECT_THROW(Communicator{nameless}, UsageError);
    JobGroup slotless = group;
    slotless.process_slots = {1u << 20};
    EXPECT_THROW(Communicator{slotless}, UsageError);
    JobGroup nowhere = group;
    nowhere.memory = nullptr;
    EXPECT_THROW(Communicator{nowhere}, UsageError);
  });
}

TEST(Communicator, RefusesATimeoutOfNothing) {
  run_ranks(2, [](const JobGroup& group) {
    EXPECT_THROW(Communicator(group, {.timeout = std::chrono::nanoseconds(0)}), UsageError);
    EXPECT_THROW(Communicator(group, {.timeout = std::chrono::seconds(-1)}), UsageError);
    EXPECT_THROW(Communicator(group, {.late_after = std::chrono::seconds(-1)}), UsageError);
    Communicator communicator(group);
    EXPECT_THROW(communicator.set_timeout(std::chrono::nanoseconds(0)), UsageError);
    EXPECT_THROW(communicator.set_timeout(std::chrono::seconds(-1)), UsageError);
  });
}

}  // namespace
}  // namespace retinue::test
