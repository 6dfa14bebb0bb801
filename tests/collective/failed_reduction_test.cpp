// Functions that reduce differ between ranks, or throw.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_memory.h"
#include "support/fork_shared.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

struct Pair {
  int first;
  int second;
};

Pair join(const Pair& a, const Pair& b) {
  return {a.first + b.first, a.second * b.second};
}
Pair join_backwards(const Pair& a, const Pair& b) {
  return {b.first - a.first, b.second};
}
int join_ints(int a, int b) {
  return a - b;
}

template <auto fn, typename T>
void reduce_one(Communicator& group) {
  T data[4] = {};
  group.all_reduce<fn>(std::span<T>(data));
}

/// Rank 1 reduces by another function than the others.
void check_mismatch(const std::function<void(Communicator&)>& ours, const std::function<void(Communicator&)>& theirs,
                    const std::vector<std::string>& words) {
  run_ranks(3, [&](const JobGroup& joined) {
    Communicator group(joined);
    for (int i = 0; i < 10; ++i) group.barrier();
    try {
      (joined.rank == 1 ? theirs : ours)(group);
      ADD_FAILURE() << "the calls went together";
    } catch (const CollectiveMismatch& error) {
      const std::string text = error.what();
      for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
    }
    EXPECT_THROW(group.barrier(), CollectiveMismatch);
  });
}

TEST(FailedReduction, OfDifferentFunctions) {
  check_mismatch(reduce_one<join, Pair>, reduce_one<join_backwards, Pair>,
                 {"ranks 0, 2: all_reduce(elements of 8 bytes, 4, ", "join) at ",
                  "rank 1: all_reduce(elements of 8 bytes, 4, ", "join_backwards) at ", "failed_reduction_test.cpp:"});
}

TEST(FailedReduction, OfElementsOfDifferentSizes) {
  check_mismatch(reduce_one<join, Pair>, reduce_one<join_ints, int>,
                 {"elements of 8 bytes, 4, ", "elements of 4 bytes, 4, ", "join_ints) at "});
}

TEST(FailedReduction, OfAFunctionAndABuiltInReduction) {
  check_mismatch(reduce_one<join_ints, int>,
                 [](Communicator& group) {
                   int data[4] = {};
                   group.all_reduce(std::span<int>(data));
                 },
                 {"ranks 0, 2: all_reduce(elements of 4 bytes, 4, ", "rank 1: all_reduce(int32, 4, sum)"});
}

struct Singular : std::runtime_error {
  using std::runtime_error::runtime_error;
};

bool throws_here = false;

int may_throw(int a, int b) {
  if (throws_here) throw Singular("the matrix is singular");
  return a + b;
}

template <typename T>
std::span<T> make_buffer(const JobGroup& group, std::size_t count, std::vector<T>& own, bool in_job_memory) {
  if (in_job_memory) return {group.memory->at<T>(group.memory->allocate(count * sizeof(T)).offset), count};
  own.resize(count);
  return own;
}

void check_that_it_throws(int ranks, std::size_t count, bool in_job_memory) {
  run_ranks(ranks, [&](const JobGroup& joined) {
    Communicator group(joined);
    std::vector<int> own;
    const std::span<int> data = make_buffer(joined, count, own, in_job_memory);
    std::fill(data.begin(), data.end(), 1);
    throws_here = joined.rank == 1;
    const auto call = [&] {
      group.all_reduce<may_throw>(data);
      group.barrier();  // Who needed nothing of the rank that threw learns of it here.
    };
    for (int i = 0; i < 2; ++i) {
      if (joined.rank == 1) {
        EXPECT_THROW(call(), Singular);
        continue;
      }
      try {
        call();
        ADD_FAILURE() << "rank 1 threw, and nobody noticed";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.ranks(), std::vector{1});
        const std::string text = error.what();
        for (const char* word : {"the reduction threw on rank 1, in its 1st call", "may_throw) at ", "is singular"})
          EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
      }
    }
  });
}

TEST(FailedReduction, ThatThrewIsThrownThereAndToldToTheOthers) {
  for (const int ranks : {2, 3, 5})
    for (const bool in_job_memory : {false, true})
      for (const std::size_t count : {1, 100, 300'000}) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(count) + " elements");
        check_that_it_throws(ranks, count, in_job_memory);
      }
}

struct Page {
  char bytes[4096];
};

std::atomic<bool>* thrown = nullptr;  ///< Seen by all ranks.
int calls = 0;

Page throw_or_dawdle(const Page& a, const Page&) {
  if (throws_here) {
    *thrown = true;
    throw Singular("the page is singular");
  }
  while (!*thrown) std::this_thread::yield();
  ++calls;
  usleep(10'000);
  return a;
}

/// The member that threw may not leave before, since they are at its buffers.
TEST(FailedReduction, ThatTakesLongEndsSoonAfterAnotherThrew) {
  const ForkShared<std::atomic<bool>> shared;
  thrown = shared.get();
  constexpr std::size_t kPages = 6000;
  run_ranks(3, [](const JobGroup& joined) {
    Communicator group(joined);
    std::vector<Page> own;
    const std::span<Page> data = make_buffer(joined, kPages, own, true);
    throws_here = joined.rank == 2;
    if (joined.rank == 2) {
      EXPECT_THROW(group.all_reduce<throw_or_dawdle>(data), Singular);
    } else {
      EXPECT_THROW(group.all_reduce<throw_or_dawdle>(data), PeerLost);
      EXPECT_LT(calls, static_cast<int>(kPages) / 3);
    }
  });
}

}  // namespace
}  // namespace retinue::test
