#include <gtest/gtest.h>

#include <random>

#include "collective/exchange_grid.h"
#include "collective/exchange_model.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

class Exchange : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Exchange, testing::Values(1, 2, 3, 4, 7, 8, 16));

/// One type for what is only moved, and one whose sums tell the order in which they were made.
void check_with_its_type(Communicator& communicator, const ExchangeCase& c) {
  if (reduces(c.kind)) {
    check_exchange<BFloat16>(communicator, c);
  } else {
    check_exchange<std::uint8_t>(communicator, c);
  }
}

TEST_P(Exchange, OfEachKindGivesWhatTheModelSays) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    const int size = communicator.size();
    std::uint64_t seed = 0;
    for (const CollectiveKind kind : kDataKinds)
      for (const std::size_t count : counts_around_borders({}, kind, static_cast<std::size_t>(size),
                                                           reduces(kind) ? sizeof(BFloat16) : sizeof(std::uint8_t))) {
        ++seed;
        const bool is_much = count * static_cast<std::size_t>(size) > 20000;
        const std::size_t every = is_much && is_sanitized() ? 7 : is_much || is_sanitized() ? 3 : 1;
        for (std::uint64_t turn = 0; turn < (is_much ? 1 : 4); ++turn) {
          const std::uint64_t chance = seed * 8 + turn;
          if (pick(chance, 9, every) == 0) check_with_its_type(communicator, case_by_chance(kind, count, size, chance));
        }
      }
  });
}

class FewerRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, FewerRanks, testing::Values(1, 2, 3, 5));

TEST_P(FewerRanks, ExchangeManyChunks) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::uint64_t seed = 0;
    for (const CollectiveKind kind : kDataKinds)
      for (const Place place : {Place::kPrivate, Place::kMixed, Place::kJob}) {
        ++seed;
        check_with_its_type(communicator, {.kind = kind,
                                           .count = is_sanitized() ? 150001u : 410001u,
                                           .input_place = place,
                                           .output_place = Place::kPrivate,
                                           .root = static_cast<int>(seed) % communicator.size(),
                                           .seed = seed});
      }
  });
}

TEST_P(FewerRanks, ReduceEachTypeWithTheBitsOfTheSerialLoop) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    std::uint64_t seed = 0;
    for (const CollectiveKind kind : kDataKinds) {
      if (!reduces(kind)) continue;
      for_each_pair([&]<typename T>(ReduceOp op) {
        ++seed;
        for (const std::size_t count : {1, 3, 700, pick(seed, 9, 4) == 0 && !is_sanitized() ? 20001 : 5}) {
          ExchangeCase c = case_by_chance(kind, count, communicator.size(), seed * 100000 + count);
          c.op = op;
          check_exchange<T>(communicator, c);
        }
      });
    }
  });
}

TEST(ExchangeOfMany, KindsInRandomOrderStayInStep) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    std::mt19937 random(7);
    for (std::uint64_t i = 0; i < (is_sanitized() ? 300 : 3000); ++i) {
      const CollectiveKind kind = kDataKinds[random() % std::size(kDataKinds)];
      const std::size_t count = random() % 4 == 0 ? random() % 60000 : random() % 40;
      check_with_its_type(communicator, {.kind = kind,
                                         .count = count,
                                         .input_place = kPlaces[random() % std::size(kPlaces)],
                                         .output_place = kPlaces[random() % std::size(kPlaces)],
                                         .in_place = random() % 2 == 0,
                                         .root = static_cast<int>(random() % 3),
                                         .seed = i});
      if (random() % 8 == 0) communicator.barrier();
    }
  });
}

TEST(ExchangeOfSpans, ChecksTheSizesOfBuffers) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    const std::vector<int> two(2, group.rank + 1);
    std::vector<int> four(4);
    communicator.all_gather(std::span(two), std::span(four));
    EXPECT_EQ(four, (std::vector{1, 1, 2, 2}));
    communicator.gather(std::span(two), std::span(four), 0);
    std::vector<int> sums(2);
    communicator.reduce(std::span(two), std::span(sums), 1);
    EXPECT_EQ(sums[0], group.rank == 1 ? 3 : 0);
    communicator.scan(std::span(two), std::span(sums));
    EXPECT_EQ(sums[1], group.rank == 1 ? 3 : 1);
    communicator.reduce_scatter(std::span<const int>(four), std::span(sums));
    EXPECT_EQ(sums[0], group.rank == 1 ? 4 : 2);
    communicator.scatter(std::span<const int>(four), std::span(sums), 1);
    EXPECT_EQ(sums[0], group.rank == 1 ? 2 : 1);
    communicator.all_to_all(std::span(two), std::span(sums));
    EXPECT_EQ(sums, (std::vector{1, 2}));
    EXPECT_THROW(communicator.all_gather(std::span(two), std::span(sums)), UsageError);
    EXPECT_THROW(communicator.reduce_scatter(std::span(two), std::span(sums)), UsageError);
    EXPECT_THROW(communicator.scan(std::span<const int>(four), std::span(sums)), UsageError);
    EXPECT_THROW(communicator.all_to_all(std::span<const int>(four).first(3), std::span(four).first(3)), UsageError);
    communicator.barrier();  // None of these was sent.
  });
}

TEST(ExchangeUsage, RefusesWhatCannotBe) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> buffer(64);
    std::byte* const data = buffer.data();
    const int own = group.rank;
    EXPECT_THROW(communicator.gather(data, data + 8, 8, 2), UsageError);
    EXPECT_THROW(communicator.scatter(nullptr, data, 8, own), UsageError);
    EXPECT_THROW(communicator.reduce(data, nullptr, 8, Dtype::kUint8, ReduceOp::kSum, own), UsageError);
    EXPECT_THROW(communicator.all_to_all(data, nullptr, 8), UsageError);
    EXPECT_THROW(communicator.all_to_all(data, data, std::size_t{1} << 62), UsageError);
    // Overlaps that would change what others have yet to read.
    EXPECT_THROW(communicator.all_gather(data + 4, data, 8), UsageError);
    EXPECT_THROW(communicator.all_gather(data + (own == 0 ? 8 : 0), data, 8), UsageError);
    EXPECT_THROW(communicator.all_to_all(data, data + 8, 8), UsageError);
    EXPECT_THROW(communicator.scan(data, data + 1, 8, Dtype::kUint8, ReduceOp::kSum), UsageError);
    EXPECT_THROW(communicator.reduce(data, data + 1, 8, Dtype::kUint8, ReduceOp::kSum, own), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall{}), UsageError);
    // What is given as data may be anything.
    CollectiveCall call = CollectiveCall::all_reduce(data, 8, Dtype::kUint8, ReduceOp::kSum);
    call.output = data + 8;
    EXPECT_THROW(communicator.run(call), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::broadcast(data, 6, 0).of(Dtype::kFloat32)), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::broadcast(data, 8, 0).of(static_cast<Dtype>(99))), UsageError);
    call = CollectiveCall::scan(data, data, 8, Dtype::kUint8, ReduceOp::kSum);
    call.uneven = true;
    EXPECT_THROW(communicator.run(call), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::scan(data, data, 8, Dtype::kInt8, ReduceOp::kSum).premultiplied(2)),
                 UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::scan(data, data, 1, Dtype::kComplex64, ReduceOp::kMin)), UsageError);
    const std::vector<ConstBytes> one_input{ConstBytes(data, 8)};
    EXPECT_THROW(communicator.run(CollectiveCall::scatter(one_input, Bytes(data + 16, 8), own)), UsageError);
    call = CollectiveCall::all_to_all(data, data + 32, 8);
    call.inputs = one_input;
    EXPECT_THROW(communicator.run(call), UsageError);
    communicator.barrier();  // None of these was sent.
  });
}

}  // namespace
}  // namespace retinue::test
