#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "samples.h"

namespace retinue::bench {

/// What rank `rank` puts at place `index` in iteration `iteration`: small integers, whose sums are exact.
inline float input_value(int rank, int iteration, std::size_t index) {
  return static_cast<float>(rank + 1 + ((iteration + 1024) & 7)) + static_cast<float>(index & 15);
}

inline void rewrite(float* data, std::size_t count, int rank, int iteration) {
  const float start = input_value(rank, iteration, 0);
  for (std::size_t i = 0; i < count; ++i) data[i] = start + static_cast<float>(i & 15);
}

/// Errors: std::runtime_error at the first element that is not the sum over all ranks.
inline void check_sum(const float* data, std::size_t count, int ranks, int iteration) {
  float first = 0;
  for (int rank = 0; rank < ranks; ++rank) first += input_value(rank, iteration, 0);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i)
    wrong += data[i] != first + static_cast<float>(ranks) * static_cast<float>(i & 15);
  if (wrong != 0) throw std::runtime_error(fmt::format("all_reduce: {} of {} elements are wrong", wrong, count));
}

/// Measures `all_reduce` on `data`, rewritten before and checked after every call.
template <class AllReduce>
void measure_verified_sum(const Round& round, const RankContext& context, float* data, AllReduce&& all_reduce) {
  const std::size_t count = round.bytes / sizeof(float);
  measure_iterations(
      round, context, [&](int i) { rewrite(data, count, context.rank(), i); }, all_reduce,
      [&](int i) { check_sum(data, count, context.world_size(), i); });
}

}  // namespace retinue::bench
