#pragma once

#include <complex>
#include <cstdint>
#include <initializer_list>
#include <tuple>

#include "collective/reference.h"

/// Which reductions tests do on which types.
namespace retinue::test {

/// All numbers that have an order have all of these.
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};

using AllTypes = std::tuple<std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, std::uint16_t,
                            std::uint32_t, std::uint64_t, BFloat16, Float16, float, double>;

template <typename Visit>
void for_each_type(Visit visit) {
  std::apply([&](auto... values) { (visit(values), ...); }, AllTypes{});
}

/// Calls visit.operator()<T>(op) for each reduction that T has.
template <typename T, typename Visit>
void for_each_op(Visit& visit) {
  const auto visit_all = [&](std::initializer_list<ReduceOp> ops) {
    for (const ReduceOp op : ops) visit.template operator()<T>(op);
  };
  visit_all({ReduceOp::kSum, ReduceOp::kProduct});
  if constexpr (!kIsBool<T>) visit_all({ReduceOp::kAvg});
  if constexpr (!kIsComplex<T>) visit_all({ReduceOp::kMin, ReduceOp::kMax});
  if constexpr (kIsFloating<T> || kIsComplex<T>) {
    visit_all({ReduceOp::kPremulSum});
  } else {
    visit_all({ReduceOp::kBitAnd, ReduceOp::kBitOr, ReduceOp::kBitXor, ReduceOp::kLogicalAnd, ReduceOp::kLogicalOr,
               ReduceOp::kLogicalXor});
  }
}

/// Calls visit.operator()<T>(op) for each type and each reduction that it has.
template <typename Visit>
void for_each_pair(Visit visit) {
  for_each_type([&]<typename T>(T) { for_each_op<T>(visit); });
  for_each_op<AnyBool>(visit);
  for_each_op<std::complex<float>>(visit);
  for_each_op<std::complex<double>>(visit);
}

}  // namespace retinue::test
