#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "collective/small_float.h"
#include "retinue/collective/types.h"

namespace retinue::test {

/// A bool as ranks may send it: any byte. (A bool of another byte than 0 and 1 can't be looked at, and a vector of them
/// is one of bits.)
struct AnyBool {
  std::uint8_t byte;
};

}  // namespace retinue::test

namespace retinue {
template <>
struct DtypeOf<test::AnyBool> {
  static constexpr Dtype value = Dtype::kBool;
};
}  // namespace retinue

/// What reductions must give, written without a look at the kernels: one element after the other.
namespace retinue::test {

template <typename T>
constexpr bool kIsSmall = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;
template <typename T>
constexpr bool kIsFloating = std::is_floating_point_v<T> || kIsSmall<T>;
template <typename T>
constexpr bool kIsComplex = false;
template <typename T>
constexpr bool kIsComplex<std::complex<T>> = true;
template <typename T>
constexpr bool kIsBool = std::is_same_v<T, AnyBool>;

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

/// The product as memory holds it: nothing of it is fused with the sum that follows.
template <typename A>
A rounded_product(A a, A b) {
  volatile A product = a * b;
  return product;
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

template <typename T>
T reference_number(ReduceOp op, const std::vector<T>& by_rank, const std::vector<double>& factors) {
  using A = decltype(widen(by_rank[0]));
  const auto term = [&](std::size_t i) {
    const A value = widen(by_rank[i]);
    return op == ReduceOp::kPremulSum ? rounded_product(static_cast<A>(factors[i]), value) : value;
  };
  A sum = term(0);
  for (std::size_t i = 1; i < by_rank.size(); ++i) sum = reference_step<A>(op, sum, term(i));
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

/// The parts by themselves, but for the product.
template <typename T>
std::complex<T> reference_complex(ReduceOp op, const std::vector<std::complex<T>>& by_rank,
                                  const std::vector<double>& factors) {
  if (op == ReduceOp::kProduct) {
    T re = by_rank[0].real();
    T im = by_rank[0].imag();
    for (std::size_t i = 1; i < by_rank.size(); ++i) {
      const T c = by_rank[i].real();
      const T d = by_rank[i].imag();
      const T next_re = rounded_product(re, c) - rounded_product(im, d);
      im = rounded_product(re, d) + rounded_product(im, c);
      re = next_re;
    }
    return {re, im};
  }
  std::vector<T> re;
  std::vector<T> im;
  for (const std::complex<T>& value : by_rank) {
    re.push_back(value.real());
    im.push_back(value.imag());
  }
  return {reference_number(op, re, factors), reference_number(op, im, factors)};
}

inline bool reference_truth(ReduceOp op, std::size_t trues, std::size_t ranks) {
  switch (op) {
    case ReduceOp::kMin:
    case ReduceOp::kProduct:
    case ReduceOp::kBitAnd:
    case ReduceOp::kLogicalAnd:
      return trues == ranks;
    case ReduceOp::kBitXor:
    case ReduceOp::kLogicalXor:
      return trues % 2 == 1;
    default:
      return trues > 0;
  }
}

template <typename T>
T reference_bits(ReduceOp op, const std::vector<T>& by_rank) {
  T result{};
  for (unsigned bit = 0; bit < 8 * sizeof(T); ++bit) {
    const auto ones = std::count_if(by_rank.begin(), by_rank.end(),
                                    [&](T value) { return (static_cast<std::uint64_t>(value) >> bit & 1) != 0; });
    if (reference_truth(op, static_cast<std::size_t>(ones), by_rank.size()))
      result = static_cast<T>(static_cast<std::uint64_t>(result) | std::uint64_t{1} << bit);
  }
  return result;
}

/// One element's reduction over the ranks, in rank order. Factors: one for each rank, for kPremulSum.
template <typename T>
T reference(ReduceOp op, const std::vector<T>& by_rank, const std::vector<double>& factors = {}) {
  const bool is_logical = op >= ReduceOp::kLogicalAnd;
  if constexpr (kIsBool<T>) {
    const auto trues = std::count_if(by_rank.begin(), by_rank.end(), [](T value) { return value.byte != 0; });
    return T{reference_truth(op, static_cast<std::size_t>(trues), by_rank.size())};
  } else if constexpr (kIsComplex<T>) {
    return reference_complex(op, by_rank, factors);
  } else if constexpr (kIsFloating<T>) {
    return reference_number(op, by_rank, factors);
  } else if (is_logical) {
    const auto trues = std::count_if(by_rank.begin(), by_rank.end(), [](T value) { return value != 0; });
    return reference_truth(op, static_cast<std::size_t>(trues), by_rank.size()) ? T{1} : T{0};
  } else if (op >= ReduceOp::kBitAnd) {
    return reference_bits(op, by_rank);
  } else {
    return reference_number(op, by_rank, factors);
  }
}

}  // namespace retinue::test
