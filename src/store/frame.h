#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// What clients and servers of a TcpStore say after their handshake: one request, one answer, and so on.
namespace retinue {

/// Requests and answers have one form:
///   u32 bytes that follow; u8 kind; i64 number; u32 count; for each string: u32 bytes, the bytes
struct Frame {
  std::uint8_t kind = 0;
  std::int64_t number = 0;
  std::vector<std::string> strings;
};

enum class Request : std::uint8_t {
  kSet = 1,     ///< Strings: key, value.
  kGet,         ///< Strings: keys. Number: how long, in nanoseconds; negative: for ever.
  kWait,        ///< The same.
  kAdd,         ///< String: key. Number: what to add.
  kCompareSet,  ///< Strings: key, expected, desired.
  kCheck,       ///< Strings: keys.
  kDelete,      ///< String: key.
  kNumKeys,
};

enum class Answer : std::uint8_t {
  kDone = 1,  ///< Number and strings as the request has them.
  kMissing,   ///< The time is over. Strings: keys that nobody has set.
  kRefused,   ///< A UsageError. String: its message.
};

inline constexpr std::size_t kFrameHead = 4;    ///< The length.
inline constexpr std::size_t kFrameLeast = 13;  ///< What follows it at least.

/// Bytes that follow the length.
std::uint64_t body_bytes(const Frame& frame);
/// Errors: UsageError if it is 4 GiB or longer.
std::string encode(const Frame& frame);
/// From what follows the length; nullopt if it is no frame.
std::optional<Frame> decode(std::string_view body);

/// Puts a frame together from bytes as they come. It holds what came, however long it is said to become.
class FrameReader {
 public:
  explicit FrameReader(std::uint64_t max_bytes) : max_bytes_(max_bytes) {}

  /// Takes bytes up to the frame's end, and returns how many. Of a frame that is longer than `max_bytes` they are
  /// dropped.
  std::size_t take(std::string_view bytes);
  bool is_complete() const { return head_.size() == kFrameHead && taken_ == expected_; }
  bool is_too_long() const { return expected_ > max_bytes_; }
  std::uint64_t expected() const { return expected_; }
  /// Of a complete frame; the reader begins anew.
  std::optional<Frame> frame();

 private:
  std::uint64_t max_bytes_;
  std::string head_;
  std::string body_;
  std::uint64_t expected_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace retinue
