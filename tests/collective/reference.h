#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "retinue/collective/types.h"

/// What reductions must give, written without a look at the kernels: one element after the other, conversions by
/// arithmetic on doubles instead of bits.
namespace retinue::test {

struct SmallFloat {
  int mantissa_bits;
  int smallest_exponent;
  int largest_exponent;
  std::uint16_t nan;
};
constexpr SmallFloat kBFloat16Shape{7, -126, 127, 0x7fc0};
constexpr SmallFloat kFloat16Shape{10, -14, 15, 0x7e00};

inline double decode(std::uint16_t bits, const SmallFloat& shape) {
  const int exponent_bits = 15 - shape.mantissa_bits;
  const int exponent = (bits >> shape.mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << shape.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, shape.smallest_exponent - shape.mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(mantissa, -shape.mantissa_bits), exponent - shape.largest_exponent);
}

inline std::uint16_t encode(double value, const SmallFloat& shape) {
  if (std::isnan(value)) return shape.nan;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  const auto infinity = static_cast<std::uint16_t>(sign | (2 * shape.largest_exponent + 1) << shape.mantissa_bits);
  if (std::isinf(magnitude)) return infinity;
  if (magnitude == 0) return sign;
  int exponent = std::max(std::ilogb(magnitude), shape.smallest_exponent);
  // nearbyint rounds halves to even, as the conversion must.
  double units = std::nearbyint(std::ldexp(magnitude, shape.mantissa_bits - exponent));
  if (units == std::ldexp(2.0, shape.mantissa_bits)) {
    units /= 2;
    ++exponent;
  }
  if (exponent > shape.largest_exponent) return infinity;
  const auto whole = static_cast<int>(units);
  const int implicit = 1 << shape.mantissa_bits;
  if (whole < implicit) return static_cast<std::uint16_t>(sign | whole);
  return static_cast<std::uint16_t>(sign | (exponent + shape.largest_exponent) << shape.mantissa_bits |
                                    (whole - implicit));
}

template <typename T>
constexpr bool kIsSmall = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <typename T>
constexpr bool kIsFloating = std::is_floating_point_v<T> || kIsSmall<T>;

template <typename T>
constexpr const SmallFloat& shape_of() {
  return std::is_same_v<T, BFloat16> ? kBFloat16Shape : kFloat16Shape;
}

template <typename T>
auto widen(T value) {
  if constexpr (kIsSmall<T>) {
    return static_cast<float>(decode(value.bits, shape_of<T>()));
  } else {
    return value;
  }
}

template <typename T>
bool is_nan(T value) {
  if constexpr (kIsFloating<T>) {
    return std::isnan(widen(value));
  } else {
    return false;
  }
}

template <typename A>
A reference_step(ReduceOp op, A sum, A next) {
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) {
    if constexpr (std::is_floating_point_v<A>)
      if (std::isnan(sum) || std::isnan(next)) return std::numeric_limits<A>::quiet_NaN();
    const bool next_wins = op == ReduceOp::kMin ? next < sum : next > sum;
    return next_wins ? next : sum;
  }
  const bool multiplies = op == ReduceOp::kProduct;
  if constexpr (std::is_floating_point_v<A>) {
    return multiplies ? sum * next : sum + next;
  } else {
    // Modulo 2^64 first, then modulo the type's range: the same as wrapping at each step.
    const auto a = static_cast<std::uint64_t>(sum);
    const auto b = static_cast<std::uint64_t>(next);
    return static_cast<A>(multiplies ? a * b : a + b);
  }
}

/// One element's reduction over the ranks, in rank order.
template <typename T>
T reference(ReduceOp op, const std::vector<T>& by_rank) {
  auto sum = widen(by_rank[0]);
  using A = decltype(sum);
  for (std::size_t i = 1; i < by_rank.size(); ++i) sum = reference_step<A>(op, sum, widen(by_rank[i]));
  if (op == ReduceOp::kAvg) {
    if constexpr (std::is_floating_point_v<A>) {
      sum = sum / static_cast<A>(by_rank.size());
    } else if constexpr (std::is_signed_v<A>) {
      sum = static_cast<A>(static_cast<std::int64_t>(sum) / static_cast<std::int64_t>(by_rank.size()));
    } else {
      sum = static_cast<A>(static_cast<std::uint64_t>(sum) / by_rank.size());
    }
  }
  if constexpr (kIsSmall<T>) {
    return T{encode(sum, shape_of<T>())};
  } else {
    return sum;
  }
}

/// The element that `rank` contributes at `index`: the same in every process. Floating point: mostly ordinary values,
/// now and then zeros of both signs, subnormals, infinities, NaN.
template <typename T>
T element(std::uint64_t seed, int rank, std::size_t index) {
  std::uint64_t x =
      (seed + 1) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(rank) * 0xbf58476d1ce4e5b9ull + index;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  T value;
  const bool is_any = !kIsFloating<T> || (x >> 56) < 4;  // Any bits at all, in one of 64 floating-point elements.
  if (is_any) {
    std::memcpy(&value, &x, sizeof value);
    return value;
  }
  const double ordinary = (static_cast<double>(x >> 16 & 0xffffff) / 0x800000 - 1.0) * 2.0;
  if constexpr (kIsSmall<T>) {
    value = T{encode(ordinary, shape_of<T>())};
  } else {
    value = static_cast<T>(ordinary);
  }
  return value;
}

/// The same bits; any NaN equals any NaN.
template <typename T>
bool same(T a, T b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (is_nan(a) && is_nan(b));
}

}  // namespace retinue::test
