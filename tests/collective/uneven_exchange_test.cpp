// Collectives whose parts have sizes of their own.
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>

#include "collective/exchange_model.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

/// How many elements rank `from` gives to rank `to`: the same on all ranks, now and then none.
std::size_t part_count(std::uint64_t seed, int from, int to) {
  std::mt19937_64 random(seed * 10007 + static_cast<std::uint64_t>(from) * 131 + static_cast<std::uint64_t>(to));
  random.discard(3);
  switch (seed % 4) {
    case 0:
      return random() % 5;
    case 1:
      return random() % 3 == 0 ? 0 : random() % 1500;
    case 2:
      return random() % 20000;
    default:
      return random() % 3 == 0 ? random() % 400000 : random() % 100;
  }
}

/// One buffer for each rank.
template <typename T>
class PartBuffers {
 public:
  PartBuffers(const JobGroup& group, const std::vector<std::size_t>& counts, Place place) {
    for (const std::size_t count : counts) {
      buffers_.push_back(std::make_unique<PlacedBuffer>(group, count * sizeof(T), place));
      parts_.emplace_back(buffers_.back()->data(), count * sizeof(T));
      const_parts_.emplace_back(parts_.back());
    }
  }
  void fill(std::uint64_t seed, int rank) {
    for (std::size_t part = 0; part < parts_.size(); ++part)
      write_elements<T>(parts_[part].data(), elements<T>(seed + part, rank, 0, parts_[part].size() / sizeof(T)));
  }
  const std::vector<Bytes>& parts() const { return parts_; }
  const std::vector<ConstBytes>& const_parts() const { return const_parts_; }

 private:
  std::vector<std::unique_ptr<PlacedBuffer>> buffers_;
  std::vector<Bytes> parts_;
  std::vector<ConstBytes> const_parts_;
};

struct Setting {
  std::uint64_t seed;
  Place input_place;
  Place output_place;
  int root;
};

std::vector<std::size_t> counts_of(int size, const auto& count_of) {
  std::vector<std::size_t> counts;
  for (int i = 0; i < size; ++i) counts.push_back(count_of(i));
  return counts;
}

void check_all_to_all(Communicator& communicator, const Setting& s) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  PartBuffers<std::uint8_t> inputs(
      communicator.group(), counts_of(size, [&](int to) { return part_count(s.seed, rank, to); }), s.input_place);
  const PartBuffers<std::uint8_t> outputs(
      communicator.group(), counts_of(size, [&](int from) { return part_count(s.seed, from, rank); }), s.output_place);
  inputs.fill(s.seed, rank);
  communicator.run(CollectiveCall::all_to_all(inputs.const_parts(), outputs.parts()));
  for (int from = 0; from < size; ++from)
    EXPECT_EQ(
        wrong_bytes(outputs.parts()[static_cast<std::size_t>(from)], s.seed + static_cast<std::uint64_t>(rank), from),
        0u)
        << "seed " << s.seed << ", from " << from << " to " << rank << " of " << size;
}

/// all_gather, or gather with a root.
void check_gather(Communicator& communicator, const Setting& s, bool to_root) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  const bool takes = !to_root || rank == s.root;
  PartBuffers<std::uint8_t> input(communicator.group(), {part_count(s.seed, rank, 0)}, s.input_place);
  const PartBuffers<std::uint8_t> outputs(
      communicator.group(),
      takes ? counts_of(size, [&](int from) { return part_count(s.seed, from, 0); }) : std::vector<std::size_t>{},
      s.output_place);
  input.fill(s.seed, rank);
  communicator.run(to_root ? CollectiveCall::gather(input.const_parts()[0], outputs.parts(), s.root)
                           : CollectiveCall::all_gather(input.const_parts()[0], outputs.parts()));
  for (int from = 0; from < size && takes; ++from)
    EXPECT_EQ(wrong_bytes(outputs.parts()[static_cast<std::size_t>(from)], s.seed, from), 0u)
        << "seed " << s.seed << ", from " << from << ", to root " << to_root << ", " << size << " ranks";
}

void check_scatter(Communicator& communicator, const Setting& s) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  PartBuffers<std::uint8_t> inputs(
      communicator.group(),
      rank == s.root ? counts_of(size, [&](int to) { return part_count(s.seed, 0, to); }) : std::vector<std::size_t>{},
      s.input_place);
  const PartBuffers<std::uint8_t> output(communicator.group(), {part_count(s.seed, 0, rank)}, s.output_place);
  inputs.fill(s.seed, rank);
  communicator.run(CollectiveCall::scatter(inputs.const_parts(), output.parts()[0], s.root));
  EXPECT_EQ(wrong_bytes(output.parts()[0], s.seed + static_cast<std::uint64_t>(rank), s.root), 0u)
      << "seed " << s.seed << ", to " << rank << " of " << size;
}

void check_reduce_scatter(Communicator& communicator, const Setting& s) {
  const int rank = communicator.rank();
  const int size = communicator.size();
  PartBuffers<Float16> inputs(communicator.group(), counts_of(size, [&](int to) { return part_count(s.seed, 0, to); }),
                              s.input_place);
  const PartBuffers<Float16> output(communicator.group(), {part_count(s.seed, 0, rank)}, s.output_place);
  inputs.fill(s.seed, rank);
  communicator.run(CollectiveCall::reduce_scatter(inputs.const_parts(), output.parts()[0].data(),
                                                  part_count(s.seed, 0, rank), Dtype::kFloat16, ReduceOp::kSum));
  EXPECT_EQ(count_wrong<Float16>(output.parts()[0].data(),
                                 reduced_elements<Float16>(ReduceOp::kSum, s.seed + static_cast<std::uint64_t>(rank),
                                                           size, 0, part_count(s.seed, 0, rank))),
            0u)
      << "seed " << s.seed << ", rank " << rank << " of " << size;
}

class UnevenExchange : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, UnevenExchange, testing::Values(1, 2, 3, 5, 8));

TEST_P(UnevenExchange, BringsEachRankItsParts) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    for (std::uint64_t seed = 0; seed < (is_sanitized() ? 20 : 80); ++seed) {
      const Setting s{.seed = seed,
                      .input_place = kPlaces[seed % std::size(kPlaces)],
                      .output_place = kPlaces[seed / 5 % std::size(kPlaces)],
                      .root = static_cast<int>(seed) % communicator.size()};
      check_all_to_all(communicator, s);
      check_gather(communicator, s, true);
      check_gather(communicator, s, false);
      check_scatter(communicator, s);
      check_reduce_scatter(communicator, s);
    }
  });
}

TEST(UnevenExchangeOfTwo, MeetsTheEvenOneWhereTheSizesFit) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> input(10, static_cast<std::byte>(group.rank + 1));
    std::vector<std::byte> output(20);
    const std::vector<ConstBytes> inputs{ConstBytes(input).first(5), ConstBytes(input).last(5)};
    const std::vector<Bytes> outputs{Bytes(output).first(5), Bytes(output).subspan(5, 5)};
    communicator.run(group.rank == 0 ? CollectiveCall::all_to_all(inputs, outputs)
                                     : CollectiveCall::all_to_all(input.data(), output.data(), 5));
    EXPECT_EQ(output[4], std::byte{1});
    EXPECT_EQ(output[5], std::byte{2});
    const std::vector<Bytes> halves{Bytes(output).first(10), Bytes(output).last(10)};
    communicator.run(group.rank == 0 ? CollectiveCall::all_gather(input, halves)
                                     : CollectiveCall::all_gather(input.data(), output.data(), 10));
    EXPECT_EQ(output[9], std::byte{1});
    EXPECT_EQ(output[19], std::byte{2});
  });
}

TEST(UnevenExchangeOfTwo, KeepsTheListsOfACallThatWasBegun) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    const std::vector<std::byte> input(100, static_cast<std::byte>(group.rank + 1));
    std::vector<std::byte> output(200);
    const auto begin = [&] {
      const std::vector<ConstBytes> inputs{ConstBytes(input).first(40), ConstBytes(input).first(40)};
      const std::vector<Bytes> outputs{Bytes(output).first(40), Bytes(output).last(40)};
      return communicator.start(CollectiveCall::all_to_all(inputs, outputs));
    };
    begin().wait();
    EXPECT_EQ(output[39], std::byte{1});
    EXPECT_EQ(output[199], std::byte{2});
  });
}

void check_wrong_size(std::size_t size, Place place) {
  run_ranks(3, [&](const JobGroup& group) {
    Communicator communicator(group);
    const PlacedBuffer input(group, size, place);
    const PlacedBuffer output(group, 3 * size + 1, place);
    // Rank 2 expects one byte more of rank 0 than it gives.
    const std::size_t from_first = group.rank == 2 ? size + 1 : size;
    const std::vector<Bytes> outputs{Bytes(output.data(), from_first), Bytes(output.data() + size + 1, size),
                                     Bytes(output.data() + 2 * size + 1, size)};
    try {
      communicator.run(CollectiveCall::all_gather(ConstBytes(input.data(), size), outputs));
      for (;;) communicator.barrier();
    } catch (const CollectiveMismatch& error) {
      const std::string text = error.what();
      const auto words =
          "rank 2 expects " + std::to_string(size + 1) + " bytes from rank 0, which sends " + std::to_string(size);
      EXPECT_NE(text.find(words), std::string::npos) << text;
      EXPECT_NE(text.find("uneven_exchange_test.cpp:"), std::string::npos) << text;
    }
    EXPECT_THROW(communicator.barrier(), CollectiveMismatch);
  });
}

TEST(UnevenExchangeOfThree, SaysWhoseSizesDontFit) {
  check_wrong_size(7, Place::kPrivate);
  check_wrong_size(30'000, Place::kJob);
  check_wrong_size(300'000, Place::kPrivate);
}

TEST(UnevenExchangeOfThree, TakesPartsThatAreNothingAtAll) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> data(8, std::byte{5});
    // Only rank 1 gives something, to rank 2.
    std::vector<ConstBytes> inputs(3);
    std::vector<Bytes> outputs(3);
    if (group.rank == 1) inputs[2] = data;
    std::vector<std::byte> taken(8);
    if (group.rank == 2) outputs[1] = taken;
    communicator.run(CollectiveCall::all_to_all(inputs, outputs));
    EXPECT_EQ(taken == data, group.rank == 2);
    communicator.run(CollectiveCall::all_to_all(std::vector<ConstBytes>(3), std::vector<Bytes>(3)));
  });
}

TEST(UnevenExchangeOfThree, RefusesListsThatOverlap) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group);
    std::vector<std::byte> data(100);
    const std::vector<ConstBytes> inputs{ConstBytes(data).first(10), ConstBytes(data).subspan(10, 10),
                                         ConstBytes(data).subspan(20, 10)};
    const std::vector<Bytes> outputs{Bytes(data).subspan(30, 10), Bytes(data).subspan(40, 10),
                                     Bytes(data).subspan(29, 10)};
    EXPECT_THROW(communicator.run(CollectiveCall::all_to_all(inputs, outputs)), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::all_to_all(std::span(inputs).first(2), outputs)), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::all_gather(ConstBytes(data).subspan(35, 10), outputs)), UsageError);
    EXPECT_THROW(communicator.run(CollectiveCall::all_gather(ConstBytes(data).first(9), outputs)), UsageError);
    communicator.barrier();  // None of these was sent.
  });
}

}  // namespace
}  // namespace retinue::test
