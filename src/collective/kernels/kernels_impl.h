#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>

#include "collective/kernels/kernel_formats.h"
#include "collective/kernels/kernel_steps.h"
#include "collective/kernels/kernels.h"

/// Reduction kernels on vectors of `Bytes` bytes, included once per instruction set. What is computed per element
/// doesn't depend on the vector's width, so all variants give the same bits.
namespace retinue {
namespace {

template <typename Format, ReduceOp Op, int Vectors>
RETINUE_INLINE void reduce_vectors(ReduceSources sources, ReduceDestinations destinations, std::size_t at) {
  using Lanes = typename Format::Lanes;
  using Stored = typename Format::Stored;
  Lanes sums[Vectors];
  const char* first = static_cast<const char*>(sources.arrays[0]) + at;
  const auto first_factor = factor_of<Format, Op>(sources, 0);
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v)
    sums[v] = take<Format, Op>(load_vector<Stored>(first + static_cast<std::size_t>(v) * sizeof(Stored)), first_factor);
  for (int s = 1; s < sources.count; ++s) {
    const char* from = static_cast<const char*>(sources.arrays[s]) + at;
    const auto factor = factor_of<Format, Op>(sources, s);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      sums[v] = combine<Format, Op>(
          sums[v], take<Format, Op>(load_vector<Stored>(from + static_cast<std::size_t>(v) * sizeof(Stored)), factor));
  }
  Stored results[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) results[v] = Format::narrow(finish<Format, Op>(sums[v], sources.count));
  for (int d = 0; d < destinations.count; ++d) {
    char* to = static_cast<char*>(destinations.arrays[d]) + at;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      __builtin_memcpy(to + static_cast<std::size_t>(v) * sizeof(Stored), &results[v], sizeof(Stored));
  }
}

/// The last elements, fewer than a vector holds: computed in a vector that is filled up with zeros.
template <typename Format, ReduceOp Op>
RETINUE_INLINE void reduce_rest(ReduceSources sources, ReduceDestinations destinations, std::size_t at,
                                std::size_t bytes) {
  using Stored = typename Format::Stored;
  typename Format::Lanes sum{};
  for (int s = 0; s < sources.count; ++s) {
    Stored part{};
    __builtin_memcpy(&part, static_cast<const char*>(sources.arrays[s]) + at, bytes);
    const auto lanes = take<Format, Op>(part, factor_of<Format, Op>(sources, s));
    sum = s == 0 ? lanes : combine<Format, Op>(sum, lanes);
  }
  const Stored result = Format::narrow(finish<Format, Op>(sum, sources.count));
  for (int d = 0; d < destinations.count; ++d)
    __builtin_memcpy(static_cast<char*>(destinations.arrays[d]) + at, &result, bytes);
}

template <typename Format, ReduceOp Op>
void reduce(const ReduceSources& given, ReduceDestinations destinations, std::size_t count) {
  // Member by member, into registers: for all the compiler knows, stores to destinations change what `given` names.
  const ReduceSources sources{given.arrays, given.count, given.factors};
  constexpr std::size_t kStep = sizeof(typename Format::Stored);
  const std::size_t element_bytes = kStep / (sizeof(typename Format::Lanes) / sizeof(typename Format::Lane));
  const std::size_t bytes = count * element_bytes;
  std::size_t at = 0;
  for (; at + 4 * kStep <= bytes; at += 4 * kStep) reduce_vectors<Format, Op, 4>(sources, destinations, at);
  for (; at + kStep <= bytes; at += kStep) reduce_vectors<Format, Op, 1>(sources, destinations, at);
  if (at < bytes) reduce_rest<Format, Op>(sources, destinations, at, bytes - at);
}

inline void stream(void* to, const void* from, std::size_t blocks) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  for (std::size_t at = 0; at < blocks * 64; at += RETINUE_KERNEL_BYTES) stream_vector(target + at, source + at);
  finish_streaming();
}

/// Elements that are `Parts` of the format's each, and reduced as if these were elements of their own.
template <typename Format, ReduceOp Op, int Parts>
void reduce_parts(const ReduceSources& sources, ReduceDestinations destinations, std::size_t count) {
  reduce<Format, Op>(sources, destinations, count * Parts);
}

constexpr void set(KernelTable& table, Dtype dtype, ReduceOp op, ReduceKernel kernel) {
  table.kernels[static_cast<int>(dtype)][static_cast<int>(op)] = kernel;
}

template <typename Format>
constexpr void fill_ordered(KernelTable& table, Dtype dtype) {
  set(table, dtype, ReduceOp::kSum, reduce<Format, ReduceOp::kSum>);
  set(table, dtype, ReduceOp::kAvg, reduce<Format, ReduceOp::kAvg>);
  set(table, dtype, ReduceOp::kMin, reduce<Format, ReduceOp::kMin>);
  set(table, dtype, ReduceOp::kMax, reduce<Format, ReduceOp::kMax>);
  set(table, dtype, ReduceOp::kProduct, reduce<Format, ReduceOp::kProduct>);
}

/// Bits are the same in all integers, and truth in all of one size: both signednesses share these kernels.
template <typename T, int Bytes>
constexpr void fill_integer(KernelTable& table) {
  using Octets = PlainFormat<std::uint8_t, Bytes>;
  using Truth = TruthFormat<typename Unsigned<T>::Type, Bytes>;
  constexpr Dtype kDtype = DtypeOf<T>::value;
  fill_ordered<PlainFormat<T, Bytes>>(table, kDtype);
  set(table, kDtype, ReduceOp::kBitAnd, reduce_parts<Octets, ReduceOp::kBitAnd, sizeof(T)>);
  set(table, kDtype, ReduceOp::kBitOr, reduce_parts<Octets, ReduceOp::kBitOr, sizeof(T)>);
  set(table, kDtype, ReduceOp::kBitXor, reduce_parts<Octets, ReduceOp::kBitXor, sizeof(T)>);
  set(table, kDtype, ReduceOp::kLogicalAnd, reduce<Truth, ReduceOp::kBitAnd>);
  set(table, kDtype, ReduceOp::kLogicalOr, reduce<Truth, ReduceOp::kBitOr>);
  set(table, kDtype, ReduceOp::kLogicalXor, reduce<Truth, ReduceOp::kBitXor>);
}

template <typename Format>
constexpr void fill_floating(KernelTable& table, Dtype dtype) {
  fill_ordered<Format>(table, dtype);
  set(table, dtype, ReduceOp::kPremulSum, reduce<Format, ReduceOp::kPremulSum>);
}

template <int Bytes>
constexpr void fill_bool(KernelTable& table) {
  using Truth = TruthFormat<std::uint8_t, Bytes>;
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kBitAnd, ReduceOp::kLogicalAnd})
    set(table, Dtype::kBool, op, reduce<Truth, ReduceOp::kBitAnd>);
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kBitOr, ReduceOp::kLogicalOr})
    set(table, Dtype::kBool, op, reduce<Truth, ReduceOp::kBitOr>);
  for (const ReduceOp op : {ReduceOp::kBitXor, ReduceOp::kLogicalXor})
    set(table, Dtype::kBool, op, reduce<Truth, ReduceOp::kBitXor>);
}

template <typename T, int Bytes>
constexpr void fill_complex(KernelTable& table) {
  using Parts = PlainFormat<T, Bytes>;
  constexpr Dtype kDtype = DtypeOf<std::complex<T>>::value;
  set(table, kDtype, ReduceOp::kSum, reduce_parts<Parts, ReduceOp::kSum, 2>);
  set(table, kDtype, ReduceOp::kAvg, reduce_parts<Parts, ReduceOp::kAvg, 2>);
  set(table, kDtype, ReduceOp::kPremulSum, reduce_parts<Parts, ReduceOp::kPremulSum, 2>);
  set(table, kDtype, ReduceOp::kProduct, reduce_parts<ComplexFormat<T, Bytes>, ReduceOp::kProduct, 2>);
}

template <int Bytes>
constexpr KernelTable make_table() {
  KernelTable table{};
  table.stream = stream;
  fill_integer<std::int8_t, Bytes>(table);
  fill_integer<std::int16_t, Bytes>(table);
  fill_integer<std::int32_t, Bytes>(table);
  fill_integer<std::int64_t, Bytes>(table);
  fill_integer<std::uint8_t, Bytes>(table);
  fill_integer<std::uint16_t, Bytes>(table);
  fill_integer<std::uint32_t, Bytes>(table);
  fill_integer<std::uint64_t, Bytes>(table);
  fill_floating<BFloat16Format<Bytes>>(table, Dtype::kBFloat16);
  fill_floating<Float16Format<Bytes>>(table, Dtype::kFloat16);
  fill_floating<PlainFormat<float, Bytes>>(table, Dtype::kFloat32);
  fill_floating<PlainFormat<double, Bytes>>(table, Dtype::kFloat64);
  fill_bool<Bytes>(table);
  fill_complex<float, Bytes>(table);
  fill_complex<double, Bytes>(table);
  return table;
}

}  // namespace
}  // namespace retinue
