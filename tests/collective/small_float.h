#pragma once

#include <algorithm>
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

}  // namespace retinue::test
