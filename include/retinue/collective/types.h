#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace retinue {

/// Element types of collectives.
enum class Dtype : std::uint8_t {
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kBFloat16,
  kFloat16,
  kFloat32,
  kFloat64,
  kBool,  ///< Bytes: any value but 0 is true, and results are 0 or 1.
  kComplex64,
  kComplex128,  ///< std::complex<double>: the real part, then the imaginary part.
  kBytes,       ///< Untyped: no reductions; meets elements of any type in calls that only move data.
};

/// Reductions. Floating point accumulates in fp32 (fp64 for fp64) in rank order and rounds once; integers wrap. kAvg is
/// the sum divided by the number of ranks (integers: truncated towards zero). kMin and kMax propagate NaN. kPremulSum
/// adds the products of each rank's elements and its factor; factors are rounded to the accumulator type. For bool,
/// kSum and kMax are kLogicalOr, kProduct and kMin are kLogicalAnd, and bitwise reductions are the logical ones.
enum class ReduceOp : std::uint8_t {
  kSum,
  kAvg,
  kMin,
  kMax,
  kProduct,
  kPremulSum,
  kBitAnd,
  kBitOr,
  kBitXor,
  kLogicalAnd,  ///< Logical reductions take any value but 0 as true, and give 0 or 1.
  kLogicalOr,
  kLogicalXor,
  kFunction,  ///< A function of the program, for elements of any type: retinue/collective/reduce_function.h.
};

std::size_t size_of(Dtype dtype);
std::string_view name_of(Dtype dtype);
std::string_view name_of(ReduceOp op);

/// Returns whether elements of this type have this reduction. All types have kSum and kProduct; all but bool have kAvg;
/// all but complex have kMin and kMax; floating point and complex have kPremulSum; integers and bool have the bitwise
/// and logical reductions. None has kFunction.
bool is_defined(ReduceOp op, Dtype dtype);

/// 16-bit floating point values as bits. The core does arithmetic on them only in its kernels.
struct BFloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

template <typename T>
struct DtypeOf;
template <>
struct DtypeOf<std::int8_t> {
  static constexpr Dtype value = Dtype::kInt8;
};
template <>
struct DtypeOf<std::int16_t> {
  static constexpr Dtype value = Dtype::kInt16;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::kInt32;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::kInt64;
};
template <>
struct DtypeOf<std::uint8_t> {
  static constexpr Dtype value = Dtype::kUint8;
};
template <>
struct DtypeOf<std::uint16_t> {
  static constexpr Dtype value = Dtype::kUint16;
};
template <>
struct DtypeOf<std::uint32_t> {
  static constexpr Dtype value = Dtype::kUint32;
};
template <>
struct DtypeOf<std::uint64_t> {
  static constexpr Dtype value = Dtype::kUint64;
};
// The other type of as many bits: std::int64_t is one of long and long long.
template <>
struct DtypeOf<std::conditional_t<std::is_same_v<std::int64_t, long>, long long, long>> {
  static constexpr Dtype value = Dtype::kInt64;
};
template <>
struct DtypeOf<std::conditional_t<std::is_same_v<std::uint64_t, unsigned long>, unsigned long long, unsigned long>> {
  static constexpr Dtype value = Dtype::kUint64;
};
template <>
struct DtypeOf<BFloat16> {
  static constexpr Dtype value = Dtype::kBFloat16;
};
template <>
struct DtypeOf<Float16> {
  static constexpr Dtype value = Dtype::kFloat16;
};
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::kFloat32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::kFloat64;
};
template <>
struct DtypeOf<bool> {
  static constexpr Dtype value = Dtype::kBool;
};
template <>
struct DtypeOf<std::complex<float>> {
  static constexpr Dtype value = Dtype::kComplex64;
};
template <>
struct DtypeOf<std::complex<double>> {
  static constexpr Dtype value = Dtype::kComplex128;
};

/// Returns the type of elements in calls that only move data: the Dtype of T, or kBytes for any other trivially
/// copyable type.
template <typename T>
constexpr Dtype dtype_or_bytes() {
  if constexpr (requires { DtypeOf<T>::value; })
    return DtypeOf<T>::value;
  else
    return Dtype::kBytes;
}

}  // namespace retinue
