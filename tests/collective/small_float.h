#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// 16-bit floating point by arithmetic on doubles, where kernels shift bits.
namespace retinue::test {

struct SmallFloat {
  int mantissa_bits;
  int smallest_exponent;
  int largest_exponent;
  std::uint16_t nan;
};
constexpr SmallFloat kBFloat16Shape{7, -126, 127, 0x7fc0};
constexpr SmallFloat kFloat16Shape{10, -14, 15, 0x7e00};

/// Two to the power of an exponent that such numbers have, or the opposite one; ldexp takes ten times longer.
inline double power_of_two(int exponent) {
  constexpr int kMost = 140;
  static constexpr auto kPowers = [] {
    std::array<double, 2 * kMost + 1> powers{};
    double up = 1;
    double down = 1;
    for (std::size_t i = 0; i <= kMost; ++i, up *= 2, down /= 2) {
      powers[kMost + i] = up;
      powers[kMost - i] = down;
    }
    return powers;
  }();
  return kPowers[static_cast<std::size_t>(exponent + kMost)];
}

inline double decode(std::uint16_t bits, const SmallFloat& shape) {
  const int exponent_bits = 15 - shape.mantissa_bits;
  const int exponent = (bits >> shape.mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << shape.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * mantissa * power_of_two(shape.smallest_exponent - shape.mantissa_bits);
  return sign * (1.0 + mantissa * power_of_two(-shape.mantissa_bits)) * power_of_two(exponent - shape.largest_exponent);
}

inline std::uint16_t encode(double value, const SmallFloat& shape) {
  if (std::isnan(value)) return shape.nan;
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const auto infinity = static_cast<std::uint16_t>(sign | (2 * shape.largest_exponent + 1) << shape.mantissa_bits);
  const int exponent_of_double = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;
  int exponent = std::max(exponent_of_double, shape.smallest_exponent);
  if (exponent > shape.largest_exponent) return infinity;
  // nearbyint rounds halves to even, as the conversion must.
  double units = std::nearbyint(magnitude * power_of_two(shape.mantissa_bits - exponent));
  if (units == power_of_two(shape.mantissa_bits + 1)) {
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

}  // namespace retinue::test
