#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "collective/kernels/kernel_formats.h"
#include "collective/kernels/kernels.h"

/// What reductions do to a vector of elements, whatever its width: included by kernels_impl.h alone.
namespace retinue {
namespace {

template <typename T>
struct Unsigned {
  using Type = T;
};
template <>
struct Unsigned<std::int8_t> {
  using Type = std::uint8_t;
};
template <>
struct Unsigned<std::int16_t> {
  using Type = std::uint16_t;
};
template <>
struct Unsigned<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Unsigned<std::int64_t> {
  using Type = std::uint64_t;
};

/// (a, b) times (c, d) is (ac - bd, bc + ad), each product rounded by itself.
template <typename V, std::size_t... Lane>
RETINUE_INLINE V multiply_complex(V x, V y, std::index_sequence<Lane...>) {
  const V swapped = __builtin_shufflevector(x, x, static_cast<int>(Lane ^ 1)...);
  const V real = __builtin_shufflevector(y, y, static_cast<int>(Lane & ~std::size_t{1})...);
  const V imaginary = __builtin_shufflevector(y, y, static_cast<int>(Lane | 1)...);
  const V straight = x * real;
  const V crossed = swapped * imaginary;
  return __builtin_shufflevector(straight - crossed, straight + crossed,
                                 static_cast<int>(Lane % 2 == 0 ? Lane : Lane + sizeof...(Lane))...);
}

template <typename Format>
constexpr bool kIsComplex = false;
template <typename T, int Bytes>
constexpr bool kIsComplex<ComplexFormat<T, Bytes>> = true;

/// What kPremulSum multiplies a source's lanes with.
template <typename Format, ReduceOp Op>
RETINUE_INLINE typename Format::Lane factor_of(const ReduceSources& sources, int source) {
  if constexpr (Op == ReduceOp::kPremulSum) {
    return static_cast<typename Format::Lane>(sources.factors[source]);
  } else {
    return {};
  }
}

/// The lanes that one source contributes.
template <typename Format, ReduceOp Op>
RETINUE_INLINE typename Format::Lanes take(typename Format::Stored stored, typename Format::Lane factor) {
  if constexpr (Op == ReduceOp::kPremulSum) {
    return Format::widen(stored) * factor;
  } else {
    return Format::widen(stored);
  }
}

/// Joins one more rank's lanes to what was accumulated. Integers wrap, so they are added and multiplied as unsigned.
template <typename Format, ReduceOp Op, typename V>
RETINUE_INLINE V combine(V sum, V x) {
  using T = typename Format::Lane;
  if constexpr (Op == ReduceOp::kMin || Op == ReduceOp::kMax) {
    auto takes = Op == ReduceOp::kMin ? x < sum : x > sum;
    // A NaN in the sum loses no comparison, so it stays; one that comes is taken.
    if constexpr (T(1) / T(2) != T(0)) takes |= x != x;
    return takes ? x : sum;
  } else if constexpr (Op == ReduceOp::kBitAnd) {
    return sum & x;
  } else if constexpr (Op == ReduceOp::kBitOr) {
    return sum | x;
  } else if constexpr (Op == ReduceOp::kBitXor) {
    return sum ^ x;
  } else if constexpr (kIsComplex<Format>) {
    static_assert(Op == ReduceOp::kProduct, "all else is done part by part");
    return multiply_complex(sum, x, std::make_index_sequence<sizeof(V) / sizeof(T)>{});
  } else {
    using U = Vector<typename Unsigned<T>::Type, sizeof(V)>;
    const U a = bits_as<U>(sum);
    const U b = bits_as<U>(x);
    return bits_as<V>(Op == ReduceOp::kProduct ? a * b : a + b);
  }
}

template <typename Format, ReduceOp Op, typename V>
RETINUE_INLINE V finish(V sum, int ranks) {
  using T = typename Format::Lane;
  if constexpr (Op != ReduceOp::kAvg) {
    return sum;
  } else if constexpr (T(1) / T(2) != T(0)) {
    return sum / static_cast<T>(ranks);
  } else {
    // In 64 bits, because the number of ranks need not fit in T.
    constexpr bool is_signed = T(-1) < T(0);
    for (std::size_t i = 0; i < sizeof(V) / sizeof(T); ++i) {
      if constexpr (is_signed) {
        sum[i] = static_cast<T>(static_cast<std::int64_t>(sum[i]) / ranks);
      } else {
        sum[i] = static_cast<T>(static_cast<std::uint64_t>(sum[i]) / static_cast<std::uint64_t>(ranks));
      }
    }
    return sum;
  }
}

}  // namespace
}  // namespace retinue
