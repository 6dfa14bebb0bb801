#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
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

}  // namespace retinue::test
