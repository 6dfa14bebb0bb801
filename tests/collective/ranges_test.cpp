// Collectives and messages on what holds elements: vectors, arrays, spans, with parts of one size and of several.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

using Ints = std::vector<int>;

TEST(Ranges, OfAllKindsAreBuffers) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator c(group);
    const int rank = group.rank;
    Ints sums{rank, 1};
    c.all_reduce(sums);
    EXPECT_EQ(sums, (Ints{3, 3}));
    std::array<long long, 2> largest{rank, -rank};
    c.all_reduce(largest, ReduceOp::kMax);
    EXPECT_EQ(largest, (std::array<long long, 2>{2, 0}));
    double array[2] = {rank + 0.5, 0};
    c.broadcast(array, 1);
    EXPECT_EQ(array[0], 1.5);
    const Ints given{rank};
    Ints all(3);
    c.all_gather(given, all);
    EXPECT_EQ(all, (Ints{0, 1, 2}));
    c.gather(std::array{rank + 10}, std::span(all), 2);
    EXPECT_EQ(all[0], rank == 2 ? 10 : 0);
    const Ints parts{7, 8, 9};
    Ints part(1);
    c.scatter(parts, part, 0);
    EXPECT_EQ(part[0], 7 + rank);
    c.scatter(std::span(parts), std::span(part), 1);
    EXPECT_EQ(part[0], 7 + rank);
    Ints from_all(3);
    c.all_to_all(Ints{10 * rank, 10 * rank + 1, 10 * rank + 2}, from_all);
    EXPECT_EQ(from_all, (Ints{rank, 10 + rank, 20 + rank}));
    c.reduce(given, part, 1);
    EXPECT_EQ(part[0], rank == 1 ? 3 : 7 + rank);
    c.reduce_scatter(parts, part, ReduceOp::kProduct);
    EXPECT_EQ(part[0], parts[static_cast<std::size_t>(rank)] * parts[static_cast<std::size_t>(rank)] *
                           parts[static_cast<std::size_t>(rank)]);
    c.scan(given, part);
    EXPECT_EQ(part[0], rank * (rank + 1) / 2);
    c.all_reduce<std::plus<int>{}>(part);
    EXPECT_EQ(part[0], 0 + 1 + 3);
  });
}

TEST(Ranges, AreMessages) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator c(group);
    const int peer = 1 - group.rank;
    const Ints own{group.rank, 5};
    std::array<int, 2> got{};
    c.sendrecv(own, peer, got, peer);
    EXPECT_EQ(got, (std::array{peer, 5}));
    got = {};
    const Request receive = c.irecv(got, peer);
    const Request send = c.isend(own, peer);
    receive.wait();
    send.wait();
    EXPECT_EQ(got, (std::array{peer, 5}));
    if (group.rank == 0) return c.send(Ints{1, 2}, 1);
    EXPECT_EQ(c.recv(got, 0).bytes, sizeof got);
    EXPECT_EQ(got, (std::array{1, 2}));
  });
}

/// Rank r gives r + to elements to rank `to`.
Ints counts_given(int rank, int size) {
  Ints counts(static_cast<std::size_t>(size));
  std::iota(counts.begin(), counts.end(), rank);
  return counts;
}

Ints repeated(const Ints& values, const Ints& counts) {
  Ints all;
  for (std::size_t i = 0; i < values.size(); ++i) all.insert(all.end(), static_cast<std::size_t>(counts[i]), values[i]);
  return all;
}

TEST(Ranges, HavePartsOfSeveralSizes) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator c(group);
    const int rank = group.rank;
    const Ints counts{0, 1, 2};
    const Ints own(static_cast<std::size_t>(rank), rank);
    Ints all(3);
    c.all_gather(own, all, counts);
    EXPECT_EQ(all, (Ints{1, 2, 2}));
    Ints at_root(rank == 1 ? 3 : 0);
    c.gather(own, at_root, rank == 1 ? counts : Ints{}, 1);
    EXPECT_EQ(at_root, rank == 1 ? (Ints{1, 2, 2}) : Ints{});
    Ints part(static_cast<std::size_t>(rank));
    c.scatter(rank == 2 ? all : Ints{}, std::array<std::uint16_t, 3>{0, 1, 2}, part, 2);
    EXPECT_EQ(part, own);
    const Ints exchanged = counts_given(rank, 3);
    Ints taken(static_cast<std::size_t>(std::accumulate(exchanged.begin(), exchanged.end(), 0)));
    c.all_to_all(repeated({10 * rank, 10 * rank + 1, 10 * rank + 2}, exchanged), exchanged, taken, exchanged);
    EXPECT_EQ(taken, repeated({rank, 10 + rank, 20 + rank}, exchanged));
    c.reduce_scatter(Ints{1, 2, 3}, counts, part);
    EXPECT_EQ(part, rank == 0 ? Ints{} : rank == 1 ? Ints{3} : (Ints{6, 9}));
  });
}

TEST(Ranges, TakeCountsInBraces) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator c(group);
    const int rank = group.rank;
    const Ints own = rank == 0 ? Ints{} : Ints{4, 5, 6, 7, 8};
    Ints all(5);
    c.all_gather(own, all, {0, 5});  // Also where the list could be a place in a file.
    EXPECT_EQ(all, (Ints{4, 5, 6, 7, 8}));
    Ints at_root(5);
    c.gather(own, at_root, {0, 5}, 0);
    EXPECT_EQ(at_root, rank == 0 ? (Ints{4, 5, 6, 7, 8}) : Ints(5));
    Ints part(rank == 0 ? 2 : 3);
    c.scatter(all, {2, 3}, part, 0);
    EXPECT_EQ(part, rank == 0 ? (Ints{4, 5}) : (Ints{6, 7, 8}));
    Ints exchanged(rank == 0 ? 5 : 0);
    if (rank == 0)
      c.all_to_all(part, {2, 0}, exchanged, {2, 3});
    else
      c.all_to_all(part, {3, 0}, exchanged, {0, 0});
    EXPECT_EQ(exchanged, rank == 0 ? (Ints{4, 5, 6, 7, 8}) : Ints{});
    c.reduce_scatter(all, {2, 3}, part);
    EXPECT_EQ(part, rank == 0 ? (Ints{8, 10}) : (Ints{12, 14, 16}));
  });
}

TEST(Ranges, WhosePartsDontFitAreRefused) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator c(group);
    Ints own(2);
    Ints all(5);
    EXPECT_EQ(usage_error_of([&] { c.all_gather(own, all, Ints{2}); }),
              "all_gather: 1 counts for a group of 2; give one for each rank");
    EXPECT_EQ(usage_error_of([&] {
                c.all_gather(own, all, Ints{2, 2});
              }),
              "all_gather: a buffer of 5 elements can't be divided into parts of 2, 2 elements");
    EXPECT_EQ(usage_error_of([&] {
                c.gather(own, all, Ints{2, 4}, group.rank);
              }),
              "gather: a buffer of 5 elements can't be divided into parts of 2, 4 elements");
    EXPECT_EQ(usage_error_of([&] {
                c.scatter(all, Ints{6, -1}, own, group.rank);
              }),
              "scatter: the count of rank 1's part is negative");
    EXPECT_EQ(usage_error_of([&] { c.all_gather(own, own); }),
              "all_gather: a buffer holds 2 elements, but 4 are needed");
    c.barrier();  // None of these was sent.
  });
}

TEST(Ranges, OfOtherElementsAreAMismatch) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator c(group);
    const std::array<std::size_t, 2> counts{1, 1};
    Ints ints(2);
    std::vector<float> floats(2);
    if (group.rank == 0)
      EXPECT_THROW(c.all_gather(std::array{1}, ints, counts), CollectiveMismatch);
    else
      EXPECT_THROW(c.all_gather(std::array{1.f}, floats, counts), CollectiveMismatch);
  });
}

}  // namespace
}  // namespace retinue::test
