#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "collective/reference.h"

/// What tests reduce, and how they compare.
namespace retinue::test {

inline std::uint64_t hash(std::uint64_t seed, int rank, std::size_t index) {
  std::uint64_t x =
      (seed + 1) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9ull + index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

template <typename T>
T from_bits(std::uint64_t x) {
  T value;
  std::memcpy(&value, &x, sizeof value);
  return value;
}

/// The element that `rank` contributes at `index`: the same in every process. Floating point: mostly ordinary values,
/// now and then zeros of both signs, subnormals, infinities, NaN. Integers and bool: any, with more zeros.
template <typename T>
T element(std::uint64_t seed, int rank, std::size_t index) {
  const std::uint64_t x = hash(seed, rank, index);
  if constexpr (kIsComplex<T>) {
    using Part = typename T::value_type;
    return {element<Part>(seed, rank, 2 * index), element<Part>(seed, rank, 2 * index + 1)};
  } else if constexpr (!kIsFloating<T>) {
    const bool is_zero = (x >> 56) % (kIsBool<T> ? 2 : 8) == 0;
    return from_bits<T>(is_zero ? 0 : x);
  } else {
    if ((x >> 56) < 4) return from_bits<T>(x);  // Any bits at all, in one of 64 elements.
    const double ordinary = (static_cast<double>(x >> 16 & 0xffffff) / 0x800000 - 1.0) * 2.0;
    if constexpr (kIsSmall<T>) {
      return T{encode(ordinary, shape_of<T>())};
    } else {
      return static_cast<T>(ordinary);
    }
  }
}

/// Values where conversions and comparisons go wrong first.
template <typename T>
std::vector<T> hard_values() {
  std::vector<T> values;
  if constexpr (kIsSmall<T>) {
    for (std::uint32_t bits = 0; bits < 65536; ++bits) values.push_back(T{static_cast<std::uint16_t>(bits)});
  } else if constexpr (kIsBool<T>) {
    for (std::uint32_t byte = 0; byte < 256; ++byte) values.push_back(T{static_cast<std::uint8_t>(byte)});
  } else if constexpr (kIsComplex<T>) {
    const auto parts = hard_values<typename T::value_type>();
    for (const auto re : parts)
      for (const auto im : parts) values.push_back({re, im});
  } else {
    using Limits = std::numeric_limits<T>;
    values = {T(0), T(1), Limits::max(), Limits::lowest(), Limits::min(), T(-1), T(2), T(3)};
    if constexpr (kIsFloating<T>)
      for (const T value : {-T(0), Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(), Limits::denorm_min(),
                            -Limits::denorm_min(), Limits::epsilon()})
        values.push_back(value);
  }
  return values;
}

/// What `rank` multiplies its elements with in kPremulSum; most are no exact floats.
inline double factor_of_rank(int rank) {
  constexpr double kFactors[] = {1.0 / 3, -0.1, 2.0, 1e-3, -1.0 / 7, 0.5, 12345.678, 1e-40, 1.0};
  return kFactors[rank % 9];
}

template <typename T>
bool is_nan(T value) {
  if constexpr (kIsFloating<T>) {
    return std::isnan(widen(value));
  } else {
    return false;
  }
}

/// The same bits; any NaN equals any NaN.
template <typename T>
bool same(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return same(a.real(), b.real()) && same(a.imag(), b.imag());
  } else {
    return std::memcmp(&a, &b, sizeof a) == 0 || (is_nan(a) && is_nan(b));
  }
}

/// Elements `first` to before `first` + `count` of `rank`.
template <typename T>
std::vector<T> elements(std::uint64_t seed, int rank, std::size_t first, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = element<T>(seed, rank, first + i);
  return values;
}

/// What comes of the ranks' inputs, which are of one length, each with its rank's factor.
template <typename T>
std::vector<T> reduced(ReduceOp op, const std::vector<std::vector<T>>& inputs) {
  std::vector<double> factors;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) factors.push_back(factor_of_rank(static_cast<int>(rank)));
  std::vector<T> by_rank(inputs.size());
  std::vector<T> results(inputs[0].size());
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) by_rank[rank] = inputs[rank][i];
    results[i] = reference(op, by_rank, factors);
  }
  return results;
}

/// The same of elements `first` to before `first` + `count` of ranks 0 to before `ranks`.
template <typename T>
std::vector<T> reduced_elements(ReduceOp op, std::uint64_t seed, int ranks, std::size_t first, std::size_t count) {
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(elements<T>(seed, rank, first, count));
  return reduced(op, inputs);
}

/// How many of the elements at `results`, which need no alignment, aren't the expected ones.
template <typename T>
std::size_t count_wrong(const std::byte* results, std::span<const T> expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    T result;
    std::memcpy(static_cast<void*>(&result), results + i * sizeof(T), sizeof result);
    wrong += !same(result, expected[i]);
  }
  return wrong;
}

// support/elements.cpp has these of all types: most tests use them, and they are slow where they aren't optimised.
#define RETINUE_ELEMENTS_OF(keyword, T)                                                                     \
  keyword template std::vector<T> elements(std::uint64_t, int, std::size_t, std::size_t);                   \
  keyword template std::vector<T> reduced(ReduceOp, const std::vector<std::vector<T>>&);                    \
  keyword template std::vector<T> reduced_elements(ReduceOp, std::uint64_t, int, std::size_t, std::size_t); \
  keyword template std::size_t count_wrong(const std::byte*, std::span<const T>);
#define RETINUE_ELEMENTS(keyword)                   \
  RETINUE_ELEMENTS_OF(keyword, std::int8_t)         \
  RETINUE_ELEMENTS_OF(keyword, std::int16_t)        \
  RETINUE_ELEMENTS_OF(keyword, std::int32_t)        \
  RETINUE_ELEMENTS_OF(keyword, std::int64_t)        \
  RETINUE_ELEMENTS_OF(keyword, std::uint8_t)        \
  RETINUE_ELEMENTS_OF(keyword, std::uint16_t)       \
  RETINUE_ELEMENTS_OF(keyword, std::uint32_t)       \
  RETINUE_ELEMENTS_OF(keyword, std::uint64_t)       \
  RETINUE_ELEMENTS_OF(keyword, BFloat16)            \
  RETINUE_ELEMENTS_OF(keyword, Float16)             \
  RETINUE_ELEMENTS_OF(keyword, float)               \
  RETINUE_ELEMENTS_OF(keyword, double)              \
  RETINUE_ELEMENTS_OF(keyword, AnyBool)             \
  RETINUE_ELEMENTS_OF(keyword, std::complex<float>) \
  RETINUE_ELEMENTS_OF(keyword, std::complex<double>)
RETINUE_ELEMENTS(extern)

}  // namespace retinue::test
