#include "progress/histogram.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace retinue {
namespace {

/// As torch/utils/tensorboard/writer.py makes them, with the last one beyond all values.
std::vector<double> make_bucket_ends() {
  std::vector<double> positive;
  for (double end = 1e-12; end < 1e20; end *= 1.1) positive.push_back(end);
  std::vector<double> ends;
  for (auto end = positive.rbegin(); end != positive.rend(); ++end) ends.push_back(-*end);
  ends.push_back(0);
  ends.insert(ends.end(), positive.begin(), positive.end());
  return ends;
}

/// The index of the bucket [ends[i], ends[i + 1]) in which a value is; the last one has both ends.
std::size_t bucket_of(double value, const std::vector<double>& ends) {
  const auto behind = std::upper_bound(ends.begin(), ends.end(), value);
  const auto index = static_cast<std::size_t>(std::distance(ends.begin(), behind));
  return std::min(std::max<std::size_t>(index, 1), ends.size() - 1) - 1;
}

}  // namespace

Histogram histogram_of(std::span<const double> values) {
  static const std::vector<double> ends = make_bucket_ends();
  Histogram histogram{.min = std::numeric_limits<double>::infinity(), .max = -std::numeric_limits<double>::infinity()};
  std::vector<double> counts(ends.size() - 1);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    ++counts[bucket_of(value, ends)];
    ++histogram.count;
    histogram.min = std::min(histogram.min, value);
    histogram.max = std::max(histogram.max, value);
    histogram.sum += value;
    histogram.sum_squares += value * value;
  }
  if (histogram.count == 0) return histogram;
  // Empty buckets at both ends are left out, but one in front of the first value: its limit is that bucket's lower end.
  const auto is_used = [](double count) { return count > 0; };
  const auto first = std::distance(counts.begin(), std::ranges::find_if(counts, is_used));
  const auto last = std::distance(std::find_if(counts.rbegin(), counts.rend(), is_used), counts.rend());
  histogram.bucket_limits.push_back(ends[static_cast<std::size_t>(first)]);
  histogram.bucket_counts.push_back(0);
  histogram.bucket_limits.insert(histogram.bucket_limits.end(), ends.begin() + first + 1, ends.begin() + last + 1);
  histogram.bucket_counts.insert(histogram.bucket_counts.end(), counts.begin() + first, counts.begin() + last);
  return histogram;
}

}  // namespace retinue
