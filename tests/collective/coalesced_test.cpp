// all_reduce_coalesced against the serial loop over ranks.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "collective/reduction_check.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

using Counts = std::vector<std::size_t>;

struct CoalescedCase {
  Counts counts;
  Place place = Place::kPrivate;
  ReduceOp op = ReduceOp::kSum;
};

constexpr std::size_t kGap = 5;  ///< Bytes between two buffers, so that they are aligned to nothing.

/// Buffers in one piece of memory, every other one behind the rest, so that their order isn't that of their addresses.
template <typename T>
std::vector<Bytes> carve(std::byte* data, const Counts& counts) {
  std::vector<Bytes> buffers(counts.size());
  for (const std::size_t first : {1, 0})
    for (std::size_t i = first; i < counts.size(); i += 2) {
      buffers[i] = {data, counts[i] * sizeof(T)};
      data += buffers[i].size() + kGap;
    }
  return buffers;
}

template <typename T>
void check(Communicator& group, const CoalescedCase& c) {
  const std::size_t count = std::accumulate(c.counts.begin(), c.counts.end(), std::size_t{0});
  const std::size_t bytes = count * sizeof(T) + c.counts.size() * kGap;
  const PlacedBuffer memory(group.group(), bytes, c.place);
  std::fill_n(memory.data(), bytes, std::byte{0xee});
  const std::vector<Bytes> buffers = carve<T>(memory.data(), c.counts);
  std::size_t at = 0;
  for (std::size_t i = 0; i < buffers.size(); at += c.counts[i++])
    write_elements<T>(buffers[i].data(), elements<T>(3, group.rank(), at, c.counts[i]));
  const CollectiveCall call = CollectiveCall::all_reduce_coalesced(buffers, DtypeOf<T>::value, c.op);
  group.run(c.op == ReduceOp::kPremulSum ? call.premultiplied(factor_of_rank(group.rank())) : call);
  std::size_t wrong = 0;
  at = 0;
  for (std::size_t i = 0; i < buffers.size(); at += c.counts[i++]) {
    wrong += count_wrong<T>(buffers[i].data(), reduced_elements<T>(c.op, 3, group.size(), at, c.counts[i]));
    for (std::size_t k = 0; k < kGap; ++k) wrong += buffers[i].data()[c.counts[i] * sizeof(T) + k] != std::byte{0xee};
  }
  EXPECT_EQ(wrong, 0u) << c.counts.size() << " buffers of " << count << " elements, place "
                       << static_cast<int>(c.place);
}

/// `bytes` bytes in buffers of all sizes.
template <typename T>
Counts split(std::size_t bytes) {
  std::size_t left = bytes / sizeof(T);
  Counts counts{0};
  for (std::size_t next = 1; left > 0; next = next * 3 + 1) {
    counts.push_back(std::min(next % 7001, left));
    left -= counts.back();
  }
  return counts;
}

template <typename T>
void check_all(ReduceOp op) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    if (is_sanitized() && ranks > 3) break;
    run_ranks(ranks, [op](const JobGroup& joined) {
      Communicator group(joined);
      const auto size = static_cast<std::size_t>(joined.process_slots.size());
      std::vector<Counts> lists{{}, {0}, {1}, {0, 3, 0, 5}, {40'000, 1, 30'000, 0, 2}, Counts(3000, 3)};
      constexpr std::size_t kKi = 1024;
      for (const std::size_t border : {8 * kKi, 64 * kKi, 128 * kKi / size, 128 * kKi, 256 * kKi})
        for (const std::size_t bytes : {border - sizeof(T), border, border + sizeof(T)})
          lists.push_back(split<T>(bytes));
      for (const Counts& counts : lists)
        for (const Place place : {Place::kPrivateUnaligned, Place::kJob, Place::kMixed}) {
          check<T>(group, {.counts = counts, .place = place, .op = op});
          if (testing::Test::HasFailure()) return;
        }
    });
  }
}

TEST(Coalesced, OfBytes) {
  check_all<std::int8_t>(ReduceOp::kMax);
}
TEST(Coalesced, OfFloats) {
  check_all<float>(ReduceOp::kAvg);
}
TEST(Coalesced, OfPremultipliedHalves) {
  check_all<BFloat16>(ReduceOp::kPremulSum);
}
TEST(Coalesced, OfComplexNumbers) {
  check_all<std::complex<double>>(ReduceOp::kProduct);
}

/// As many as have their places in the table, and more.
TEST(Coalesced, OfThousandsOfBuffers) {
  run_ranks(3, [](const JobGroup& joined) {
    Communicator group(joined);
    for (const std::size_t buffers : {8192, 8193, 20'000})
      for (const Place place : {Place::kPrivate, Place::kJob, Place::kMixed}) {
        Counts counts(buffers, 1);
        for (std::size_t i = 0; i < buffers; i += 3) counts[i] = i % 11;
        check<double>(group, {.counts = counts, .place = place});
        check<std::int8_t>(group, {.counts = Counts(buffers, 0), .place = place});
      }
  });
}

TEST(Coalesced, MayBeBegunWithAListThatIsGoneAtItsEnd) {
  run_ranks(2, [](const JobGroup& joined) {
    Communicator group(joined);
    std::vector<int> a(3, 1);
    std::vector<int> b(50'000, 2);
    std::vector<Bytes> buffers{std::as_writable_bytes(std::span(a)), std::as_writable_bytes(std::span(b))};
    const Request begun = group.start(CollectiveCall::all_reduce_coalesced(buffers, Dtype::kInt32, ReduceOp::kSum));
    buffers.assign(2, Bytes());
    begun.wait();
    EXPECT_EQ(a, std::vector<int>(3, 2));
    EXPECT_EQ(b, std::vector<int>(50'000, 4));
  });
}

void check_mismatch(const Counts& ours, const Counts& theirs, const std::string& words) {
  run_ranks(3, [&](const JobGroup& joined) {
    Communicator group(joined);
    const Counts& counts = joined.rank == 2 ? theirs : ours;
    std::vector<float> data(200'100);
    std::vector<Bytes> buffers;
    std::size_t begin = 0;
    for (const std::size_t count : counts) {
      buffers.push_back(std::as_writable_bytes(std::span(data).subspan(begin, count)));
      begin += count;
    }
    for (int i = 0; i < 2; ++i) {
      try {
        group.all_reduce_coalesced(buffers, Dtype::kFloat32, ReduceOp::kSum);
        ADD_FAILURE() << "the lists went together";
      } catch (const CollectiveMismatch& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find(words), std::string::npos) << text;
        EXPECT_NE(text.find("coalesced_test.cpp:"), std::string::npos) << text;
      }
    }
  });
}

TEST(Coalesced, OfDifferentBuffersIsAMismatch) {
  check_mismatch({3, 5}, {5, 3}, "buffer 0 has 12 bytes on rank 0 and 20 on rank 2 (the 1st call of each)");
  check_mismatch({3, 100'000, 1}, {3, 100'001, 1}, "buffer 1 has 400000 bytes on rank 0 and 400004 on rank 2");
  check_mismatch({3, 5}, {8}, "rank 0 passes 2 buffers and rank 2 passes 1");
  check_mismatch({}, {8}, "rank 0 passes 0 buffers and rank 2 passes 1");
  Counts many(60'000, 1);
  many.back() = 0;
  many[59'000] = 2;
  check_mismatch(Counts(60'000, 1), many, "one of the buffers from 49151 on has different sizes on ranks 0 and 2");
}

TEST(Coalesced, MeetsOtherCallsAsAMismatch) {
  run_ranks(2, [](const JobGroup& joined) {
    Communicator group(joined);
    std::vector<float> data(4);
    const Bytes buffer = std::as_writable_bytes(std::span(data));
    if (joined.rank == 0)
      EXPECT_THROW(group.all_reduce(std::span(data)), CollectiveMismatch);
    else
      EXPECT_THROW(group.all_reduce_coalesced(std::span(&buffer, 1), Dtype::kFloat32, ReduceOp::kSum),
                   CollectiveMismatch);
  });
}

TEST(Coalesced, RefusesWhatIsNoListOfBuffers) {
  std::vector<float> data(16);
  const Bytes all = std::as_writable_bytes(std::span(data));
  const auto refusal = [](std::vector<Bytes> buffers) {
    return usage_error_of(
        [&] { check_call(CollectiveCall::all_reduce_coalesced(buffers, Dtype::kFloat32, ReduceOp::kSum), 0, 2); });
  };
  EXPECT_EQ(refusal({all.subspan(8, 8), all.first(4), all.subspan(12)}),
            "all_reduce_coalesced: buffers 0 and 2 overlap");
  EXPECT_EQ(refusal({all.first(4), {}, all.first(4)}), "all_reduce_coalesced: buffers 0 and 2 overlap");
  EXPECT_EQ(refusal({all.first(8), Bytes(static_cast<std::byte*>(nullptr), 4)}),
            "all_reduce_coalesced: buffer 1 is null");
  EXPECT_EQ(refusal({all.first(6)}),
            "all_reduce_coalesced: buffer 0 of 6 bytes does not consist of whole fp32 elements");
  EXPECT_EQ(refusal({all.subspan(8, 8), all.first(8), all.subspan(16)}), "no UsageError");
  CollectiveCall call = CollectiveCall::all_reduce_coalesced({}, Dtype::kFloat32, ReduceOp::kFunction);
  call.function = &reduce_function<[](float a, float b) { return a * b; }, float>();
  EXPECT_EQ(usage_error_of([&] { check_call(call, 0, 2); }),
            "all_reduce_coalesced: it does not support reduction functions");
}

}  // namespace
}  // namespace retinue::test
