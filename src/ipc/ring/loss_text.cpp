#include "ipc/ring/loss_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace retinue {
namespace {

constexpr std::size_t kShownText = 48;
constexpr std::size_t kShownBytes = 16;

bool is_printable(char c) {
  return c >= ' ' && c <= '~';
}

/// As text where it is that, else in hexadecimal.
std::string beginning_text(const LostMessage& lost) {
  const std::string& bytes = lost.beginning;
  if (bytes.empty()) return {};
  const bool is_text = std::all_of(bytes.begin(), bytes.end(), is_printable);
  const std::size_t shown = std::min(bytes.size(), is_text ? kShownText : kShownBytes);
  std::string text = is_text ? fmt::format("\"{}\"", bytes.substr(0, shown)) : std::string();
  for (std::size_t i = 0; !is_text && i < shown; ++i)
    text += fmt::format("{}{:02x}", i == 0 ? "" : " ", static_cast<unsigned char>(bytes[i]));
  return fmt::format(": {}{}", text, shown < lost.bytes ? " ..." : "");
}

std::string reason_text(const LostMessage& lost) {
  std::string often =
      fmt::format(", in delivery {} of at most {} (QueueOptions::max_deliveries)", lost.deliveries, lost.deliveries);
  switch (lost.reason) {
    case LostMessage::Reason::kConsumerDied:
      return {};
    case LostMessage::Reason::kMaxDeliveries:
      return often;
    case LostMessage::Reason::kDeadLettersFull:
      return often + ", and the dead-letter queue is full";
    case LostMessage::Reason::kDeadLettersClosed:
      return often + ", and the dead-letter queue is closed";
    case LostMessage::Reason::kDeadLettersFailed:
      return often + ", and the dead-letter queue could not take it";
  }
  return {};
}

}  // namespace

std::string consumer_text(int rank, int pid) {
  if (pid == 0) return "a consumer";
  return rank < 0 ? fmt::format("process {}", pid) : fmt::format("rank {} (pid {})", rank, pid);
}

std::string loss_text(const LostMessage& lost, std::string_view of) {
  return fmt::format("retinue: {} lost message {} ({} bytes{}): {} ended while it held the message{}\n", of,
                     lost.number, lost.bytes, beginning_text(lost),
                     consumer_text(lost.consumer_rank, lost.consumer_pid), reason_text(lost));
}

}  // namespace retinue
