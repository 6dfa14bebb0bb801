#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/collective/divergence.h"
#include "retinue/collective/objects.h"
#include "retinue/collective/split.h"
#include "retinue/collective/zero_first.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using Step = std::function<void(Communicator&)>;

/// Rank 1 makes another call than the others: all must learn it, with the same words, again and again.
void check_mismatch(int size, const Step& ours, const Step& theirs, const std::vector<std::string>& words) {
  run_ranks(size, [&](const JobGroup& group) {
    Communicator communicator(group);
    for (int i = 0; i < 10; ++i) communicator.barrier();
    std::string first;
    try {
      (group.rank == 1 ? theirs : ours)(communicator);
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      first = error.what();
    }
    for (const std::string& word : words) EXPECT_NE(first.find(word), std::string::npos) << word << " in: " << first;
    EXPECT_NE(first.find("mismatch_test.cpp:"), std::string::npos) << first;
    try {
      communicator.barrier();
      ADD_FAILURE() << "the group was used after a mismatch";
    } catch (const CollectiveMismatch& error) {
      EXPECT_EQ(first, error.what());
    }
  });
}

TEST(Mismatch, OfOperations) {
  check_mismatch(
      2, [](Communicator& c) { c.barrier(); },
      [](Communicator& c) {
        float x = 1;
        c.all_reduce(&x, 1, Dtype::kFloat32, ReduceOp::kSum);
      },
      {"rank 0: barrier", "rank 1: all_reduce(fp32, 1, sum)"});
}

/// Where that makes collectives of other names.
TEST(Mismatch, SaysWhatTheProgramCalled) {
  const Step barrier = [](Communicator& c) { c.barrier(); };
  const auto check = [&](const Step& ours, const char* word) {
    check_mismatch(2, ours, barrier, {word, "rank 1: barrier at "});
  };
  check([](Communicator& c) { all_gather_object(c, 7); }, " bytes) in all_gather_object at ");
  check([](Communicator& c) { gather_object(c, 7, 0); }, " bytes) in gather_object at ");
  check([](Communicator& c) { scatter_object(c, std::vector<int>{1, 2}, 1); }, " bytes, root 1) in scatter_object at ");
  check(
      [](Communicator& c) {
        int value = 7;
        broadcast_object(c, value, 1);
      },
      " bytes, root 1) in broadcast_object at ");
  check([](Communicator& c) { check_same(c, "x", {}); }, "rank 0: all_gather(16 bytes) in check_same at ");
  check([](Communicator& c) { split(c, {}); }, " bytes) in split at ");
  check([](Communicator& c) { new_group(c, std::vector<int>{0}); }, " bytes) in new_group at ");
  check(
      [](Communicator& c) {
        { const ZeroFirst guard(c); }
        c.barrier();
      },
      " bytes, root 0) in ZeroFirst at ");
  check_mismatch(
      2, [](Communicator& c) { c.monitored_barrier(); },
      [](Communicator& c) { c.scan(nullptr, nullptr, 0, Dtype::kInt32, ReduceOp::kSum); },
      {"rank 0: barrier in monitored_barrier at "});
}

/// In the bytes of one call another would read what it never sent.
TEST(Mismatch, OfCallsThatMoveAsManyBytes) {
  const auto check = [](const Step& ours, const Step& theirs, const std::vector<std::string>& words) {
    check_mismatch(2, ours, theirs, words);
  };
  const std::int64_t sizes[] = {1, 1'000'000'000'000};
  std::int64_t all[4];
  std::byte bytes[2048] = {};
  check(
      [](Communicator& c) { check_same(c, "x", {}); },
      [&](Communicator& c) { c.all_gather(std::span<const std::int64_t>(sizes, 2), std::span<std::int64_t>(all, 4)); },
      {"rank 0: all_gather(16 bytes) in check_same at ", "rank 1: all_gather(int64, 16 bytes) at "});
  check([](Communicator& c) { split(c, {}); },
        [](Communicator& c) {
          new_group(c, std::vector<int>{0, 1});
        },
        {" bytes) in split at ", " bytes) in new_group at "});
  check(
      [](Communicator& c) {
        { const ZeroFirst guard(c); }
        c.barrier();
      },
      [&](Communicator& c) { c.broadcast(bytes, 1024, 0); },
      {"rank 0: broadcast(1024 bytes, root 0) in ZeroFirst at ", "rank 1: broadcast(1024 bytes, root 0) at "});
  check(
      [](Communicator& c) {
        std::string text;
        broadcast_object(c, text, 1);
      },
      [&](Communicator& c) {
        c.broadcast(bytes, sizeof(detail::ObjectNotice), 1);
        c.barrier();
      },
      {" bytes, root 1) in broadcast_object at ", " bytes, root 1) at "});
}

TEST(Mismatch, OfCountsAmongThree) {
  const auto reduce = [](std::size_t count) {
    return [count](Communicator& c) {
      std::vector<double> data(count);
      c.all_reduce(std::span(data), ReduceOp::kMax);
    };
  };
  check_mismatch(3, reduce(100000), reduce(100001),
                 {"(the 11th of each): rank 1: all_reduce(fp64, 100001, max) at ",
                  "; ranks 0, 2: all_reduce(fp64, 100000, max) at "});
}

/// Where all that differ stand first, and no rank is left out.
TEST(Mismatch, OfManyRanksNamesAllAndFirstThoseThatDiffer) {
  run_ranks(64, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<float> data(11);
    const bool is_odd = group.rank == 3 || group.rank == 40;
    // Rank 0 makes the call of most at a place of its own, as where it is the one that logs.
    const CallSite site{group.rank == 0
                            ? "/a/folder/of/which/there/is/no/room/in/what/ranks/tell/of/their/calls/first.cpp"
                            : "rest.cpp",
                        88};
    try {
      communicator.all_reduce(std::span(data).first(is_odd ? 11 : 10), ReduceOp::kSum, site);
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      EXPECT_STREQ(
          error.what(),
          "group \"test group\": the ranks made different calls (the 1st of each): "
          "ranks 3, 40: all_reduce(fp32, 11, sum) at rest.cpp:88; "
          "rank 0: all_reduce(fp32, 10, sum) at .../is/no/room/in/what/ranks/tell/of/their/calls/first.cpp:88; "
          "ranks 1, 2, 4-39, 41-63: all_reduce(fp32, 10, sum) at rest.cpp:88");
    }
  });
}

TEST(Mismatch, OfAsManyCallsAsRanksShowsSomeAndNamesAllRanks) {
  run_ranks(12, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<float> data(12);
    try {
      communicator.all_reduce(std::span(data).first(static_cast<std::size_t>(group.rank)), ReduceOp::kSum,
                              {"own.cpp", 1});
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("(the 1st of each): rank 0: all_reduce(fp32, 0, sum) at own.cpp:1; rank 1: "),
                std::string::npos)
          << text;
      EXPECT_TRUE(text.ends_with("; rank 7: all_reduce(fp32, 7, sum) at own.cpp:1; ranks 8-11: other calls")) << text;
    }
  });
}

TEST(Mismatch, OfTypes) {
  check_mismatch(
      2,
      [](Communicator& c) {
        float x[4] = {};
        c.all_reduce(x, 4, Dtype::kFloat32, ReduceOp::kSum);
      },
      [](Communicator& c) {
        int x[4] = {};
        c.all_reduce(x, 4, Dtype::kInt32, ReduceOp::kSum);
      },
      {"fp32", "int32"});
}

template <typename T>
void exchange(Communicator& c, CollectiveKind kind) {
  std::vector<T> one(1);
  std::vector<T> all(static_cast<std::size_t>(c.size()));
  const std::span<const T> part(one);
  const std::span<const T> parts(all);
  if (kind == CollectiveKind::kBroadcast) c.broadcast(std::span(one), 0);
  if (kind == CollectiveKind::kAllGather) c.all_gather(part, std::span(all));
  if (kind == CollectiveKind::kGather) c.gather(part, std::span(all), 0);
  if (kind == CollectiveKind::kScatter) c.scatter(parts, std::span(one), 0);
  if (kind == CollectiveKind::kAllToAll) {
    std::vector<T> taken(all.size());
    c.all_to_all(parts, std::span(taken));
  }
  c.barrier();  // A root alone needs nobody.
}

constexpr CollectiveKind kMoving[] = {CollectiveKind::kBroadcast, CollectiveKind::kAllGather, CollectiveKind::kGather,
                                      CollectiveKind::kScatter, CollectiveKind::kAllToAll};

TEST(Mismatch, OfTypesOfDataThatOnlyMove) {
  for (const CollectiveKind kind : kMoving)
    for (const int size : {2, 3}) {
      SCOPED_TRACE(name_of(kind));
      const std::string call(name_of(kind));
      check_mismatch(
          size, [&](Communicator& c) { exchange<float>(c, kind); },
          [&](Communicator& c) { exchange<std::int32_t>(c, kind); },
          {(size == 2 ? "rank 0: " : "ranks 0, 2: ") + call + "(fp32, 4 bytes", "rank 1: " + call + "(int32, 4 bytes"});
    }
}

/// Who is far behind is not waited for, and learns it when it comes.
TEST(Mismatch, NamesWhoIsNotThereYet) {
  const ForkShared<std::atomic<int>> told;
  run_ranks(3, [&](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    if (group.rank == 2) {
      ASSERT_TRUE(wait_until([&] { return *told == 2; }));
    }
    try {
      exchange<float>(communicator, group.rank == 1 ? CollectiveKind::kScatter : CollectiveKind::kGather);
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      const std::string text = error.what();
      for (const char* word :
           {"rank 0: gather(fp32, 4 bytes", "rank 1: scatter(fp32, 4 bytes", "rank 2: not there yet"})
        EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
    }
    ++*told;
  });
}

TEST(Mismatch, IsNoneOfBytesAndElements) {
  struct Word {
    char text[4];
  };
  for (const CollectiveKind kind : kMoving)
    run_ranks(3, [&](const JobGroup& group) {
      Communicator communicator(group);
      for (int i = 0; i < 3; ++i) {
        if ((group.rank + i) % 3 == 1)
          exchange<Word>(communicator, kind);
        else
          exchange<float>(communicator, kind);
      }
    });
  // Which meet both, doesn't make two types meet.
  check_mismatch(
      3,
      [](Communicator& c) {
        if (c.rank() == 0)
          exchange<Word>(c, CollectiveKind::kAllGather);
        else
          exchange<float>(c, CollectiveKind::kAllGather);
      },
      [](Communicator& c) { exchange<std::int32_t>(c, CollectiveKind::kAllGather); },
      {"rank 0: all_gather(4 bytes)", "rank 1: all_gather(int32, 4 bytes)", "rank 2: all_gather(fp32, 4 bytes)"});
}

TEST(Mismatch, OfReductions) {
  const auto reduce = [](ReduceOp op) {
    return [op](Communicator& c) {
      float x = 0;
      c.all_reduce(&x, 1, Dtype::kFloat32, op);
    };
  };
  check_mismatch(2, reduce(ReduceOp::kMin), reduce(ReduceOp::kAvg), {"min", "avg"});
}

TEST(Mismatch, OfRoots) {
  const auto broadcast = [](int root) {
    return [root](Communicator& c) {
      char x[100] = {};
      c.broadcast(x, sizeof x, root);
      c.barrier();  // A root alone needs nobody.
    };
  };
  check_mismatch(3, broadcast(0), broadcast(2), {"broadcast(100 bytes, root 0)", "broadcast(100 bytes, root 2)"});
}

}  // namespace
}  // namespace retinue::test
