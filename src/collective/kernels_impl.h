#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/kernel_formats.h"
#include "collective/kernels.h"

/// Reduction kernels on vectors of `Bytes` bytes, included once per instruction set. What is computed per element
/// doesn't depend on the vector's width, so all variants give the same bits.
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

/// Joins one more rank's lanes to what was accumulated. Integers wrap, so they are added and multiplied as unsigned.
template <ReduceOp Op, typename T, typename V>
RETINUE_INLINE V combine(V sum, V x) {
  if constexpr (Op == ReduceOp::kMin || Op == ReduceOp::kMax) {
    auto takes = Op == ReduceOp::kMin ? x < sum : x > sum;
    // A NaN in the sum loses no comparison, so it stays; one that comes is taken.
    if constexpr (T(1) / T(2) != T(0)) takes |= x != x;
    return takes ? x : sum;
  } else {
    using U = Vector<typename Unsigned<T>::Type, sizeof(V)>;
    const U a = bits_as<U>(sum);
    const U b = bits_as<U>(x);
    return bits_as<V>(Op == ReduceOp::kProduct ? a * b : a + b);
  }
}

template <ReduceOp Op, typename T, typename V>
RETINUE_INLINE V finish(V sum, int ranks) {
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

template <typename Format, ReduceOp Op, int Vectors>
RETINUE_INLINE void reduce_vectors(ReduceSources sources, ReduceDestinations destinations, std::size_t at) {
  using Lanes = typename Format::Lanes;
  using Stored = typename Format::Stored;
  Lanes sums[Vectors];
  const char* first = static_cast<const char*>(sources.arrays[0]) + at;
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v)
    sums[v] = Format::widen(load_vector<Stored>(first + static_cast<std::size_t>(v) * sizeof(Stored)));
  for (int s = 1; s < sources.count; ++s) {
    const char* from = static_cast<const char*>(sources.arrays[s]) + at;
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      sums[v] = combine<Op, typename Format::Lane>(
          sums[v], Format::widen(load_vector<Stored>(from + static_cast<std::size_t>(v) * sizeof(Stored))));
  }
  Stored results[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v)
    results[v] = Format::narrow(finish<Op, typename Format::Lane>(sums[v], sources.count));
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
    const auto lanes = Format::widen(part);
    sum = s == 0 ? lanes : combine<Op, typename Format::Lane>(sum, lanes);
  }
  const Stored result = Format::narrow(finish<Op, typename Format::Lane>(sum, sources.count));
  for (int d = 0; d < destinations.count; ++d)
    __builtin_memcpy(static_cast<char*>(destinations.arrays[d]) + at, &result, bytes);
}

template <typename Format, ReduceOp Op>
void reduce(ReduceSources sources, ReduceDestinations destinations, std::size_t count) {
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

template <typename Format>
constexpr void fill(ReduceKernel (&row)[kReduceOps]) {
  row[static_cast<int>(ReduceOp::kSum)] = reduce<Format, ReduceOp::kSum>;
  row[static_cast<int>(ReduceOp::kAvg)] = reduce<Format, ReduceOp::kAvg>;
  row[static_cast<int>(ReduceOp::kMin)] = reduce<Format, ReduceOp::kMin>;
  row[static_cast<int>(ReduceOp::kMax)] = reduce<Format, ReduceOp::kMax>;
  row[static_cast<int>(ReduceOp::kProduct)] = reduce<Format, ReduceOp::kProduct>;
}

template <int Bytes>
constexpr KernelTable make_table() {
  KernelTable table{};
  table.stream = stream;
  fill<PlainFormat<std::int8_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kInt8)]);
  fill<PlainFormat<std::int16_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kInt16)]);
  fill<PlainFormat<std::int32_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kInt32)]);
  fill<PlainFormat<std::int64_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kInt64)]);
  fill<PlainFormat<std::uint8_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kUint8)]);
  fill<PlainFormat<std::uint16_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kUint16)]);
  fill<PlainFormat<std::uint32_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kUint32)]);
  fill<PlainFormat<std::uint64_t, Bytes>>(table.kernels[static_cast<int>(Dtype::kUint64)]);
  fill<BFloat16Format<Bytes>>(table.kernels[static_cast<int>(Dtype::kBFloat16)]);
  fill<Float16Format<Bytes>>(table.kernels[static_cast<int>(Dtype::kFloat16)]);
  fill<PlainFormat<float, Bytes>>(table.kernels[static_cast<int>(Dtype::kFloat32)]);
  fill<PlainFormat<double, Bytes>>(table.kernels[static_cast<int>(Dtype::kFloat64)]);
  return table;
}

}  // namespace
}  // namespace retinue
