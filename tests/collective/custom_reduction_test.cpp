// Reductions by functions of the program, against the serial loop over ranks.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "collective/reduction_check.h"
#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_memory.h"
#include "support/ranks.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

/// Reductions of these neither commute nor associate, and each byte of the result needs another byte of the element.
template <std::size_t N>
struct Blob {
  unsigned char bytes[N];
};

template <std::size_t N>
Blob<N> chain(const Blob<N>& a, const Blob<N>& b) {
  Blob<N> result;
  for (std::size_t i = 0; i < N; ++i)
    result.bytes[i] = static_cast<unsigned char>(a.bytes[i] * 31 + b.bytes[N - 1 - i] + i);
  return result;
}

struct Matrix {
  std::uint64_t m[4];
};

Matrix multiply(Matrix a, Matrix b) {
  constexpr std::uint64_t kPrime = 1'000'003;
  const auto at = [&](std::size_t i, std::size_t k) {
    return (a.m[2 * i] * b.m[k] + a.m[2 * i + 1] * b.m[2 + k]) % kPrime;
  };
  return {{at(0, 0), at(0, 1), at(1, 0), at(1, 1)}};
}

/// Needs its alignment, has no default constructor, and can't be assigned.
struct alignas(32) Fixed {
  explicit Fixed(std::uint32_t from) : value(from) {}
  const std::uint32_t value;
  std::uint32_t filled[7] = {};
};

Fixed subtract(const Fixed& a, const Fixed& b) {
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&a) % alignof(Fixed), 0u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(&b) % alignof(Fixed), 0u);
  return Fixed(a.value * 3 - b.value);
}

template <typename T>
void write_element(std::byte* to, int rank, std::size_t index) {
  const std::uint64_t x = hash(7, rank, index);
  if constexpr (std::is_same_v<T, Fixed>) {
    const Fixed element(static_cast<std::uint32_t>(x));
    std::memcpy(to, &element, sizeof element);
  } else if constexpr (std::is_same_v<T, Matrix>) {
    const Matrix element{{x % 1000, x / 7 % 1000, x / 11 % 1000, x / 13 % 1000}};
    std::memcpy(to, &element, sizeof element);
  } else {
    for (std::size_t i = 0; i < sizeof(T); ++i) to[i] = static_cast<std::byte>(x >> i % 56 ^ i * 5);
  }
}

/// A T in which any bytes may be, without a constructor's call.
template <typename T>
struct Room {
  const T& value() const { return *reinterpret_cast<const T*>(bytes.data()); }
  alignas(T) std::array<std::byte, sizeof(T)> bytes;
};

/// At least `count` elements that the ranks from `first` to before `end` give, reduced by a serial loop. They are made
/// once in a process, since each case has them.
template <auto fn, typename T>
const std::byte* elements_of(int first, int end, std::size_t count) {
  static std::map<std::pair<int, int>, std::vector<std::byte>> by_ranks;
  static Room<T> sum;
  static Room<T> next;
  std::vector<std::byte>& elements = by_ranks[{first, end}];
  for (std::size_t index = elements.size() / sizeof(T); index < count; ++index) {
    write_element<T>(sum.bytes.data(), first, index);
    for (int i = first + 1; i < end; ++i) {
      write_element<T>(next.bytes.data(), i, index);
      const T joined = fn(sum.value(), next.value());
      std::memcpy(sum.bytes.data(), &joined, sizeof(T));
    }
    elements.insert(elements.end(), sum.bytes.begin(), sum.bytes.end());
  }
  return elements.data();
}

/// That these are elements `begin` to before `begin` + `count` of what `ranks` ranks get.
template <auto fn, typename T>
void expect_elements(const std::byte* found, int ranks, std::size_t begin, std::size_t count) {
  const std::byte* expected = elements_of<fn, T>(0, ranks, begin + count) + begin * sizeof(T);
  const std::byte* end = expected + count * sizeof(T);
  if (count == 0 || std::memcmp(found, expected, count * sizeof(T)) == 0) return;
  ADD_FAILURE() << "element "
                << static_cast<std::size_t>(std::mismatch(expected, end, found).first - expected) / sizeof(T) << " of "
                << count;
}

struct ReductionCase {
  CollectiveKind kind;
  std::size_t count;
  Place place;
  bool in_place = false;
};

constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kReduce,
                                     CollectiveKind::kReduceScatter, CollectiveKind::kScan};

CollectiveCall call_of(const ReductionCase& c, const ReduceFunction& function, std::byte* input, std::byte* output,
                       int root) {
  if (c.kind == CollectiveKind::kAllReduce) return CollectiveCall::all_reduce(output, c.count, function);
  if (c.kind == CollectiveKind::kReduce) return CollectiveCall::reduce(input, output, c.count, function, root);
  if (c.kind == CollectiveKind::kScan) return CollectiveCall::scan(input, output, c.count, function);
  return CollectiveCall::reduce_scatter(input, output, c.count, function);
}

template <auto fn, typename T>
void check(Communicator& group, const ReductionCase& c) {
  const int rank = group.rank();
  const int root = group.size() / 2;
  const bool parts = c.kind == CollectiveKind::kReduceScatter;
  const std::size_t given = c.count * (parts ? static_cast<std::size_t>(group.size()) : 1);
  const std::size_t own = parts ? static_cast<std::size_t>(rank) * c.count : 0;
  const PlacedBuffer input(group.group(), given * sizeof(T), c.place);
  const PlacedBuffer other(group.group(), c.count * sizeof(T), c.place);
  std::copy_n(elements_of<fn, T>(rank, rank + 1, given), given * sizeof(T), input.data());
  const bool in_place = c.in_place || c.kind == CollectiveKind::kAllReduce;
  std::byte* output = in_place ? input.data() + own * sizeof(T) : other.data();
  group.run(call_of(c, reduce_function<fn, T>(), input.data(), output, root));
  if (c.kind == CollectiveKind::kReduce && rank != root) return;
  const int ranks = c.kind == CollectiveKind::kScan ? rank + 1 : group.size();
  expect_elements<fn, T>(output, ranks, own, c.count);
}

/// Around everything at which another path is taken, or another round or slice begins.
std::set<std::size_t> counts_of(std::size_t element_bytes, std::size_t ranks, bool parts) {
  constexpr std::size_t kChunk = 128 << 10;
  std::set<std::size_t> counts{0, 1, 2};
  const std::size_t unit = element_bytes * (parts ? ranks : 1);
  for (const std::size_t border : {std::size_t{8}, std::size_t{32}, std::size_t{8} << 10, std::size_t{64} << 10,
                                   kChunk / ranks, kChunk - 64 * (ranks + 1), kChunk, 2 * kChunk})
    for (std::size_t i = 0; i < 3; ++i)
      if (const std::size_t count = border / unit + i; count > 0 && count * unit <= 2 * kChunk + unit)
        counts.insert(count - 1);
  return counts;
}

constexpr Place kReductionPlaces[] = {Place::kPrivateUnaligned, Place::kJob, Place::kMixed};

template <auto fn, typename T>
void check_all() {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    if (is_sanitized() && ranks > 3) break;
    run_ranks(ranks, [](const JobGroup& joined) {
      Communicator group(joined);
      unsigned turn = 0;
      for (const CollectiveKind kind : kKinds)
        for (const std::size_t count :
             counts_of(sizeof(T), static_cast<std::size_t>(group.size()), kind == CollectiveKind::kReduceScatter))
          for (const Place place : kReductionPlaces) {
            if (is_sanitized() && place != kReductionPlaces[count % std::size(kReductionPlaces)]) continue;
            SCOPED_TRACE(std::string(name_of(kind)) + " of " + std::to_string(count) + " elements, place " +
                         std::to_string(static_cast<int>(place)));
            check<fn, T>(group, {.kind = kind, .count = count, .place = place, .in_place = ++turn % 2 == 0});
            if (testing::Test::HasFailure()) return;
          }
    });
  }
}

TEST(CustomReduction, OfElementsOf1Byte) {
  check_all<chain<1>, Blob<1>>();
}
TEST(CustomReduction, OfElementsOf3Bytes) {
  check_all<chain<3>, Blob<3>>();
}
TEST(CustomReduction, OfElementsOf12Bytes) {
  check_all<chain<12>, Blob<12>>();
}
TEST(CustomReduction, OfElementsOf24Bytes) {
  check_all<chain<24>, Blob<24>>();
}
TEST(CustomReduction, OfElementsOf100Bytes) {
  check_all<chain<100>, Blob<100>>();
}
TEST(CustomReduction, OfElementsOfAPageAndSome) {
  check_all<chain<4096 + 8>, Blob<4096 + 8>>();
}
TEST(CustomReduction, OfElementsThatFillAChunk) {
  check_all<chain<(128 << 10) - 64>, Blob<(128 << 10) - 64>>();
}
TEST(CustomReduction, OfElementsThatNoChunkHolds) {
  check_all<chain<300'000>, Blob<300'000>>();
}
TEST(CustomReduction, OfMatrices) {
  check_all<multiply, Matrix>();
}
TEST(CustomReduction, OfElementsThatAreHardToHold) {
  check_all<subtract, Fixed>();
}

TEST(CustomReduction, OnSpans) {
  run_ranks(3, [](const JobGroup& joined) {
    Communicator group(joined);
    constexpr auto kDigits = [](auto a, auto b) { return a * 10 + b; };
    int digit = group.rank() + 1;
    int result = 0;
    group.reduce<kDigits>(std::span<const int>(&digit, 1), std::span(&result, 1), 2);
    EXPECT_EQ(result, group.rank() == 2 ? 123 : 0);
    group.scan<kDigits>(std::span<const int>(&digit, 1), std::span(&result, 1));
    EXPECT_EQ(result, (std::array{1, 12, 123})[static_cast<std::size_t>(group.rank())]);
    const std::array digits{digit, digit + 1, digit + 2};
    group.reduce_scatter<kDigits>(std::span<const int>(digits), std::span(&result, 1));
    EXPECT_EQ(result, 123 + 111 * group.rank());
    group.all_reduce<kDigits>(std::span(&digit, 1));
    EXPECT_EQ(digit, 123);
    group.all_reduce<[](const float& a, const float& b) { return a - b; }>(std::span<float>());
  });
}

TEST(CustomReduction, OfPartsOfDifferentSizesAndWithoutWaiting) {
  run_ranks(4, [](const JobGroup& joined) {
    Communicator group(joined);
    const ReduceFunction& function = reduce_function<chain<12>, Blob<12>>();
    for (const std::size_t much : {1, 3000, 30'000}) {
      const std::size_t own = static_cast<std::size_t>(group.rank()) * much;  // Elements; rank 0 takes none.
      std::vector<Blob<12>> given(6 * much);
      for (std::size_t i = 0; i < given.size(); ++i)
        write_element<Blob<12>>(reinterpret_cast<std::byte*>(&given[i]), group.rank(), i);
      std::vector<ConstBytes> inputs;
      for (std::size_t i = 0, begin = 0; i < 4; begin += i++ * much)
        inputs.push_back(std::as_bytes(std::span(given).subspan(begin, i * much)));
      std::vector<Blob<12>> taken(own);
      group.start(CollectiveCall::reduce_scatter(inputs, taken.data(), taken.size(), function)).wait();
      const auto begin = static_cast<std::size_t>(inputs[static_cast<std::size_t>(group.rank())].data() -
                                                  reinterpret_cast<const std::byte*>(given.data())) /
                         sizeof(Blob<12>);
      expect_elements<chain<12>, Blob<12>>(reinterpret_cast<const std::byte*>(taken.data()), 4, begin, own);
    }
  });
}

TEST(CustomReduction, AloneIsACopy) {
  const int input = 5;
  int output = 0;
  const auto& function = reduce_function<[](int, int) -> int { throw std::runtime_error("not to be called"); }, int>();
  run_alone(CollectiveCall::reduce(&input, &output, 1, function, 0));
  EXPECT_EQ(output, 5);
}

TEST(CustomReduction, IsRefusedWhereItIsNone) {
  int data = 0;
  CollectiveCall call = CollectiveCall::all_reduce(&data, 1, Dtype::kInt32, ReduceOp::kFunction);
  EXPECT_NE(usage_error_of([&] { check_call(call, 0, 2); }).find("the function is missing"), std::string::npos);
  call = CollectiveCall::all_reduce(&data, 1, reduce_function<multiply, Matrix>()).premultiplied(2);
  EXPECT_NE(usage_error_of([&] { check_call(call, 0, 2); }).find("it has a function, but its reduction is premul_sum"),
            std::string::npos);
  call = CollectiveCall::broadcast(&data, 1, 0);
  call.op = ReduceOp::kFunction;
  EXPECT_NE(usage_error_of([&] { check_call(call, 0, 2); }).find("broadcast"), std::string::npos);
  EXPECT_FALSE(is_defined(ReduceOp::kFunction, Dtype::kInt32));
}

}  // namespace
}  // namespace retinue::test
