#include "store/frame.h"

#include <algorithm>
#include <limits>

#include "retinue/base/error.h"
#include "store/little_endian.h"

namespace retinue {

std::uint64_t body_bytes(const Frame& frame) {
  std::uint64_t bytes = kFrameLeast;
  for (const std::string& string : frame.strings) bytes += 4 + string.size();
  return bytes;
}

std::string encode(const Frame& frame) {
  const std::uint64_t bytes = body_bytes(frame);
  if (bytes > std::numeric_limits<std::uint32_t>::max())
    throw UsageError("the keys and values of one store call have 4 GiB or more: split the call");
  std::string text;
  text.reserve(kFrameHead + bytes);
  put_number(text, static_cast<std::uint32_t>(bytes));
  put_number(text, frame.kind);
  put_number(text, static_cast<std::uint64_t>(frame.number));
  put_number(text, static_cast<std::uint32_t>(frame.strings.size()));
  for (const std::string& string : frame.strings) {
    put_number(text, static_cast<std::uint32_t>(string.size()));
    text += string;
  }
  return text;
}

std::optional<Frame> decode(std::string_view body) {
  if (body.size() < kFrameLeast) return std::nullopt;
  Frame frame;
  frame.kind = number_at<std::uint8_t>(body);
  frame.number = static_cast<std::int64_t>(number_at<std::uint64_t>(body.substr(1)));
  const auto count = number_at<std::uint32_t>(body.substr(9));
  std::string_view rest = body.substr(kFrameLeast);
  if (count > rest.size() / 4) return std::nullopt;
  frame.strings.reserve(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (rest.size() < 4) return std::nullopt;
    const auto bytes = number_at<std::uint32_t>(rest);
    rest.remove_prefix(4);
    if (bytes > rest.size()) return std::nullopt;
    frame.strings.emplace_back(rest.substr(0, bytes));
    rest.remove_prefix(bytes);
  }
  if (!rest.empty()) return std::nullopt;
  return frame;
}

std::size_t FrameReader::take(std::string_view bytes) {
  std::size_t used = 0;
  if (head_.size() < kFrameHead) {
    used = std::min(kFrameHead - head_.size(), bytes.size());
    head_ += bytes.substr(0, used);
    if (head_.size() < kFrameHead) return used;
    expected_ = number_at<std::uint32_t>(head_);
  }
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(expected_ - taken_, bytes.size() - used));
  if (!is_too_long()) body_ += bytes.substr(used, wanted);
  taken_ += wanted;
  return used + wanted;
}

std::optional<Frame> FrameReader::frame() {
  std::optional<Frame> frame = decode(body_);
  *this = FrameReader(max_bytes_);
  return frame;
}

}  // namespace retinue
