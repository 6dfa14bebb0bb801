#include "progress/event.h"

#include <bit>
#include <cstring>
#include <span>

#include "progress/crc32c.h"

namespace retinue {
namespace {

static_assert(std::endian::native == std::endian::little, "protocol buffers and TFRecord files are little-endian");

template <typename T>
void append_raw(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof bytes);
}

/// A message in the making. Fields are named by their numbers in TensorFlow's .proto files.
class Message {
 public:
  Message& add(std::uint32_t field, std::uint64_t value) {
    add_key(field, kVarint);
    add_varint(value);
    return *this;
  }
  Message& add(std::uint32_t field, double value) {
    add_key(field, kFixed64);
    append_raw(bytes_, value);
    return *this;
  }
  Message& add(std::uint32_t field, float value) {
    add_key(field, kFixed32);
    append_raw(bytes_, value);
    return *this;
  }
  Message& add(std::uint32_t field, std::string_view bytes) {
    add_key(field, kBytes);
    add_varint(bytes.size());
    bytes_ += bytes;
    return *this;
  }
  Message& add(std::uint32_t field, const Message& message) { return add(field, std::string_view(message.bytes_)); }
  Message& add(std::uint32_t field, std::span<const double> values) {
    return add(field, std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
  }

  std::string take() { return std::move(bytes_); }

 private:
  enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  void add_key(std::uint32_t field, WireType type) { add_varint(field << 3 | type); }
  void add_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

Message event_at(const EventTime& time) {
  Message event;
  event.add(1, time.wall_time).add(2, static_cast<std::uint64_t>(time.step));
  return event;
}

/// `value`: a Summary.Value.
std::string summary_event(const EventTime& time, const Message& value) {
  return event_at(time).add(5, Message().add(1, value)).take();
}

}  // namespace

std::string version_event(const EventTime& time) {
  return event_at(time).add(3, std::string_view("brain.Event:2")).take();
}

std::string scalar_event(const EventTime& time, std::string_view tag, float value) {
  return summary_event(time, Message().add(1, tag).add(2, value));
}

std::string text_event(const EventTime& time, std::string_view tag, std::string_view text) {
  constexpr std::uint64_t kStrings = 7;  // DT_STRING
  const Message shape = Message().add(2, Message().add(1, std::uint64_t{1}));
  const Message tensor = Message().add(1, kStrings).add(2, shape).add(8, text);
  const Message metadata = Message().add(1, Message().add(1, std::string_view("text")));
  return summary_event(time, Message().add(1, tag).add(8, tensor).add(9, metadata));
}

std::string histogram_event(const EventTime& time, std::string_view tag, const Histogram& histogram) {
  const Message counts = Message()
                             .add(1, histogram.min)
                             .add(2, histogram.max)
                             .add(3, histogram.count)
                             .add(4, histogram.sum)
                             .add(5, histogram.sum_squares)
                             .add(6, std::span(histogram.bucket_limits))
                             .add(7, std::span(histogram.bucket_counts));
  return summary_event(time, Message().add(1, tag).add(5, counts));
}

std::string session_start_event(const EventTime& time) {
  constexpr std::uint64_t kStart = 1;
  return event_at(time).add(7, Message().add(1, kStart)).take();
}

std::string framed(std::string_view event) {
  std::string length;
  append_raw(length, static_cast<std::uint64_t>(event.size()));
  std::string record = length;
  append_raw(record, masked_crc32c(length));
  record += event;
  append_raw(record, masked_crc32c(event));
  return record;
}

}  // namespace retinue
