#include "retinue/collective/zero_first.h"

#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/says.h"

namespace retinue::test {
namespace {

TEST(ZeroFirst, TheOthersComeWhenRankZeroIsDone) {
  const ForkShared<std::atomic<int>> prepared;
  run_ranks(3, [&](const JobGroup& world) {
    Communicator group(world);
    for (int round = 1; round <= 200; ++round) {
      {
        const ZeroFirst guard(group);
        EXPECT_EQ(guard.is_first(), world.rank == 0);
        if (world.rank == 0) prepared->store(round);
        EXPECT_EQ(prepared->load(), round);
      }
      group.barrier();
    }
  });
}

TEST(ZeroFirst, DoesNothingInAGroupOfOne) {
  run_ranks(1, [](const JobGroup& world) {
    Communicator group(world);
    const ZeroFirst guard(group);
    EXPECT_TRUE(guard.is_first());
    EXPECT_EQ(zero_first(group, [] { return 7; }), 7);
  });
}

TEST(ZeroFirst, AFailureOfRankZeroIsOneOfAll) {
  run_ranks(3, [](const JobGroup& world) {
    Communicator group(world);
    const auto prepare = [&] {
      const ZeroFirst guard(group);
      throw std::runtime_error("no data");
    };
    if (world.rank == 0) {
      EXPECT_THROW(prepare(), std::runtime_error);
    } else {
      try {
        prepare();
        ADD_FAILURE() << "rank 0 prepared";
      } catch (const Error& error) {
        EXPECT_TRUE(says(error.what(), "rank 0")) << error.what();
        EXPECT_TRUE(says(error.what(), "zero_first_test.cpp:")) << error.what();
#ifndef __SANITIZE_ADDRESS__  // Its own __cxa_throw comes first in programs without a Runtime.
        EXPECT_TRUE(says(error.what(), "std::runtime_error: no data")) << error.what();
#endif
      }
    }
    group.barrier();  // It is still a group.
  });
}

/// As where a program's cleaning up prepares something: the exception is not the scope's.
TEST(ZeroFirst, AnExceptionFromBeforeIsNoFailure) {
  run_ranks(2, [](const JobGroup& world) {
    Communicator group(world);
    struct PreparesAtLast {
      ~PreparesAtLast() { const ZeroFirst guard(group); }
      Communicator& group;
    };
    try {
      const PreparesAtLast last{group};
      throw std::runtime_error("no data");
    } catch (const std::runtime_error&) {
      // On both.
    }
    group.barrier();
  });
}

TEST(ZeroFirst, AFunctionsErrorTravels) {
  run_ranks(3, [](const JobGroup& world) {
    Communicator group(world);
    const int value = zero_first(group, [&] { return world.rank + 10; });
    EXPECT_EQ(value, world.rank + 10);
    const auto fail = [&](auto error) { zero_first(group, [&] { throw error; }); };
    const auto text_of = [&](auto error) -> std::string {
      try {
        fail(error);
      } catch (const UsageError& usage) {
        return std::string("usage: ") + usage.what();
      } catch (const std::exception& other) {
        return std::string("other: ") + other.what();
      } catch (int number) {
        return "an int: " + std::to_string(number);
      }
      return "nothing";
    };
    const auto expect = [&](const std::string& text, const std::string& kind, const std::string& part) {
      EXPECT_TRUE(text.starts_with(kind) && says(text, part)) << text;
      EXPECT_EQ(says(text, "rank 0"), world.rank != 0) << text;
    };
    expect(text_of(UsageError("no such data")), "usage: ", "no such data");
    expect(text_of(std::runtime_error("disk full")), "other: ", "disk full");
    expect(text_of(7), world.rank == 0 ? "an int: " : "other: ", world.rank == 0 ? "7" : "not a std::exception");
    expect(text_of(std::runtime_error(std::string(5000, 'x'))), "other: ", "xxxx");
    group.barrier();
  });
}

TEST(ZeroFirst, TheDeathOfRankZeroEndsTheWait) {
  run_ranks(2,
            [](const JobGroup& world) {
              Communicator group(world);
              const auto prepare = [&] {
                const ZeroFirst guard(group);
                raise(SIGKILL);
              };
              EXPECT_THROW(prepare(), PeerLost);
            },
            {.killed = {0}});
}

}  // namespace
}  // namespace retinue::test
