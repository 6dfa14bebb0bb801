#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace retinue {

/// When an event happened.
struct EventTime {
  double wall_time = 0;  ///< Seconds since 1970.
  std::int64_t step = 0;
};

/// Counts of values by size, as TensorFlow's HistogramProto.
struct Histogram {
  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_squares = 0;
  std::vector<double> bucket_limits = {};  ///< Upper ends.
  std::vector<double> bucket_counts = {};
};

/// TensorFlow's Event messages, in the binary format of protocol buffers: what TensorBoard reads.
std::string version_event(const EventTime& time);
std::string scalar_event(const EventTime& time, std::string_view tag, float value);
std::string text_event(const EventTime& time, std::string_view tag, std::string_view text);
std::string histogram_event(const EventTime& time, std::string_view tag, const Histogram& histogram);
/// A run begins anew at this step: TensorBoard leaves out what earlier files have from there on.
std::string session_start_event(const EventTime& time);

/// An event as a record of a TFRecord file: length, its checksum, the event, and its checksum.
std::string framed(std::string_view event);

}  // namespace retinue
