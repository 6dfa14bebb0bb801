// Collectives that were begun and are waited for later, or only asked.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <span>
#include <thread>
#include <vector>

#include "collective/begun.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

/// Of `count` words in job memory, for the life of the job.
std::span<std::int64_t> job_words(const JobGroup& group, std::size_t count) {
  return {group.memory->at<std::int64_t>(group.memory->allocate(count * sizeof(std::int64_t)).offset), count};
}

TEST(BegunCollective, EndsWhereTheBlockingCallWould) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    for (const std::size_t count : {1, 1000, 100'000}) {
      std::vector<std::int64_t> data(count, group.rank);
      const Request begun = communicator.start(sum_of(data));
      std::thread([&begun] { begun.wait(); }).join();
      EXPECT_EQ(data, std::vector<std::int64_t>(count, 3));
      EXPECT_TRUE(begun.done());
      EXPECT_EQ(begun.exception(), nullptr);
      begun.wait();
    }
  });
}

/// By every path of every kind, with nobody who waits: each member only asks.
TEST(BegunCollective, IsMadeByAskingAlone) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    constexpr std::size_t kMost = 100'000;
    const std::span<std::int64_t> job_input = job_words(group, 3 * kMost);
    const std::span<std::int64_t> job_output = job_words(group, 3 * kMost);
    std::vector<std::int64_t> own_input(3 * kMost);
    std::vector<std::int64_t> own_output(3 * kMost);
    for (const bool in_job : {false, true})
      for (const std::size_t count : {std::size_t{1}, std::size_t{300}, kMost}) {
        const std::span<std::int64_t> input = in_job ? job_input : std::span(own_input);
        const std::span<std::int64_t> output = in_job ? job_output : std::span(own_output);
        const std::size_t bytes = count * sizeof(std::int64_t);
        std::iota(input.begin(), input.end(), group.rank * 1000);
        const auto given = [&](int rank, std::size_t i) { return rank * 1000 + static_cast<std::int64_t>(i); };
        const auto expect = [&](const char* what, std::size_t begin, auto wanted) {
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < count; ++i) wrong += output[begin + i] != wanted(i);
          EXPECT_EQ(wrong, 0u) << what << " of " << count << (in_job ? " in job memory" : " in private memory");
        };
        const auto sum = [&](std::size_t i) { return 3000 + 3 * static_cast<std::int64_t>(i); };

        wait_by_asking(communicator.start(
            CollectiveCall::reduce(input.data(), output.data(), count, Dtype::kInt64, ReduceOp::kSum, 1)));
        if (group.rank == 1) expect("reduce", 0, sum);
        wait_by_asking(communicator.start(
            CollectiveCall::scan(input.data(), output.data(), count, Dtype::kInt64, ReduceOp::kMax)));
        expect("scan", 0, [&](std::size_t i) { return given(group.rank, i); });
        wait_by_asking(communicator.start(CollectiveCall::all_gather(input.data(), output.data(), bytes)));
        for (int rank = 0; rank < 3; ++rank)
          expect("all_gather", static_cast<std::size_t>(rank) * count, [&](std::size_t i) { return given(rank, i); });
        wait_by_asking(communicator.start(CollectiveCall::all_to_all(input.data(), output.data(), bytes)));
        const std::size_t own = static_cast<std::size_t>(group.rank) * count;
        for (int rank = 0; rank < 3; ++rank)
          expect("all_to_all", static_cast<std::size_t>(rank) * count,
                 [&](std::size_t i) { return given(rank, own + i); });
        wait_by_asking(communicator.start(
            CollectiveCall::reduce_scatter(input.data(), output.data(), count, Dtype::kInt64, ReduceOp::kSum)));
        expect("reduce_scatter", 0, [&](std::size_t i) { return sum(own + i); });
        wait_by_asking(communicator.start(CollectiveCall::gather(input.data(), output.data(), bytes, 2)));
        for (int rank = 0; rank < 3 && group.rank == 2; ++rank)
          expect("gather", static_cast<std::size_t>(rank) * count, [&](std::size_t i) { return given(rank, i); });
        wait_by_asking(communicator.start(CollectiveCall::scatter(input.data(), output.data(), bytes, 2)));
        expect("scatter", 0, [&](std::size_t i) { return given(2, own + i); });
        std::copy_n(input.data(), count, output.data());
        wait_by_asking(communicator.start(CollectiveCall::broadcast(output.data(), bytes, 0)));
        expect("broadcast", 0, [&](std::size_t i) { return given(0, i); });
        std::copy_n(input.data(), count, output.data());
        wait_by_asking(
            communicator.start(CollectiveCall::all_reduce(output.data(), count, Dtype::kInt64, ReduceOp::kSum)));
        expect("all_reduce", 0, sum);
        std::copy_n(input.data(), count, output.data());
        const Bytes parts[] = {std::as_writable_bytes(output.first(count / 3)),
                               std::as_writable_bytes(output.subspan(count / 3, count - count / 3))};
        wait_by_asking(communicator.start(CollectiveCall::all_reduce_coalesced(parts, Dtype::kInt64, ReduceOp::kSum)));
        expect("all_reduce_coalesced", 0, sum);
        communicator.barrier();
      }
  });
}

TEST(BegunCollective, AskingWaitsForNobody) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    std::vector<std::int64_t> data(200'000, 1);  // In rounds, in each of which both wait for the other.
    if (group.rank == 0) {
      const Request begun = communicator.start(sum_of(data));
      for (int i = 0; i < 500; ++i) EXPECT_FALSE(begun.done());
      EXPECT_FALSE(begun.under_way());
      EXPECT_FALSE(begun.wait_for(5ms));  // Which breaks nothing.
      other.barrier();
      // The other is somewhere in its call, and waits: it can't go on by more than some rounds without this one.
      wait_by_asking(begun);
      EXPECT_TRUE(begun.under_way());
    } else {
      other.barrier();
      communicator.run(sum_of(data));
    }
    EXPECT_EQ(data, std::vector<std::int64_t>(200'000, 2));
  });
}

TEST(BegunCollective, ManyGoOnInTheirOrderAndBlockingOnesAreBehindThem) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    constexpr int kCalls = 40;  // More than a member has lines.
    std::vector<std::vector<std::int64_t>> data;
    std::vector<Request> requests;
    std::vector<int> order;
    data.reserve(kCalls);
    for (int i = 0; i < kCalls; ++i) {
      data.emplace_back(i % 3 == 0 ? 1 : i * 500, i);
      requests.push_back(communicator.start(sum_of(data.back())));
      requests.back().then([&order, i] { order.push_back(i); });
      if (group.rank == 1 && i == 20) requests[3].wait();
    }
    if (group.rank == 2) {
      EXPECT_TRUE(Request::wait_any(std::span(requests).last(1)).has_value());
    } else {
      communicator.barrier();
    }
    for (int i = 0; i < kCalls; ++i) {
      EXPECT_TRUE(requests[static_cast<std::size_t>(i)].done());
      EXPECT_EQ(data[static_cast<std::size_t>(i)].back(), 3 * i);
    }
    std::vector<int> wanted(kCalls);
    std::iota(wanted.begin(), wanted.end(), 0);
    EXPECT_EQ(order, wanted);
    if (group.rank == 2) communicator.barrier();
  });
}

TEST(BegunCollective, GoesOnWhileItsMemberWaitsForMessages) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::int64_t> data(300'000, group.rank);
    int value = 0;
    const Request begun = communicator.start(sum_of(data));
    if (group.rank == 0) {
      communicator.recv(std::span(&value, 1), 1);  // Which comes when the collective has ended there.
      EXPECT_EQ(value, 7);
    } else {
      begun.wait();
      value = 7;
      communicator.send(std::span(&value, 1), 0);
    }
    begun.wait();
    EXPECT_EQ(data.back(), 1);
  });
}

/// Who left a broadcast early has no line to spare for what stages much: that is published when the others follow.
TEST(BegunCollective, MayFollowCallsThatOthersAreStillIn) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(group);
    std::vector<std::int64_t> data(4000, 1);
    std::int64_t word = group.rank;
    if (group.rank == 1) other.barrier();
    for (int i = 0; i < 10; ++i) communicator.broadcast(std::span(&word, 1), 0);
    const Request begun = communicator.start(sum_of(data));
    EXPECT_FALSE(group.rank == 0 && begun.done());
    if (group.rank == 0) other.barrier();
    begun.wait();
    EXPECT_EQ(word, 0);
    EXPECT_EQ(data, std::vector<std::int64_t>(4000, 2));
  });
}

TEST(BegunCollective, CallsBackWhoMayMakeCalls) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::int64_t> data(1000, 1);
    std::int64_t after = 0;
    const Request begun = communicator.start(sum_of(data));
    begun.then([&] {
      after = data[0];
      communicator.all_reduce(std::span(&after, 1));
    });
    begun.wait();
    EXPECT_EQ(after, 4);
  });
}

/// One that a callback begins, in a blocking call that waits for the first, is before that call on all ranks.
TEST(BegunCollective, OfACallbackIsBeforeTheCallThatCalledBack) {
  for (const std::size_t count : {1, 30'000})
    run_ranks(2, [&](const JobGroup& group) {
      Communicator communicator(group);
      std::vector<std::int64_t> first(count, 1);
      std::vector<std::int64_t> second(count, 10);
      std::vector<std::int64_t> third(count, 100);
      Request begun_later;
      const Request begun = communicator.start(sum_of(first));
      begun.then([&] { begun_later = communicator.start(sum_of(second)); });
      if (group.rank == 0) wait_by_asking(begun);
      communicator.run(sum_of(third));
      EXPECT_TRUE(begun_later.done());
      EXPECT_EQ(first.back(), 2);
      EXPECT_EQ(second, std::vector<std::int64_t>(count, 20));
      EXPECT_EQ(third, std::vector<std::int64_t>(count, 200));
    });
}

}  // namespace
}  // namespace retinue::test
