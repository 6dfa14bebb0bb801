#include "retinue/collective/explain.h"

#include <fmt/format.h>

#include "collective/board/path_table.h"
#include "collective/call/select.h"
#include "retinue/collective/communicator.h"

namespace retinue {
namespace {

/// Those that move data.
constexpr CollectiveKind kFirst = CollectiveKind::kAllReduce;
constexpr CollectiveKind kLast = CollectiveKind::kAllReduceCoalesced;

constexpr std::size_t kLargest = std::size_t{1} << 30;

std::string size_text(std::size_t bytes) {
  constexpr std::size_t kKi = 1024;
  if (bytes < kKi || bytes % kKi != 0) return fmt::format("{} B", bytes);
  if (bytes < kKi * kKi || bytes % (kKi * kKi) != 0) return fmt::format("{} KiB", bytes / kKi);
  return fmt::format("{} MiB", bytes / kKi / kKi);
}

/// As "inline to 32 B, staged to 8 KiB, direct".
template <typename PathOf>
std::string borders(PathOf path_of) {
  std::string text;
  std::size_t begin = 1;
  while (path_of(begin) != path_of(kLargest)) {
    // The last size of this path lies between `low`, which has it, and `high`, which doesn't.
    std::size_t low = begin;
    std::size_t high = kLargest;
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      (path_of(middle) == path_of(begin) ? low : high) = middle;
    }
    text += fmt::format("{} to {}, ", name_of(path_of(begin)), size_text(low));
    begin = high;
  }
  return text + std::string(name_of(path_of(kLargest)));
}

}  // namespace

std::string explain_paths(const PathTable& table, TableSource source, int size) {
  std::string text = fmt::format("borders for {} ranks ({}): {}\n", size, name_of(source), text_of(table));
  if (const auto file = path_table_file()) text += fmt::format("kept in {}\n", *file);
  text +=
      "RETINUE_PATH_TABLE changes them. It counts all bytes that a rank sends; the table below counts those of one "
      "part\n";
  text += fmt::format("{:<22}{:<45}{}\n", "", "parts in job memory", "parts in private memory");
  for (auto kind = kFirst; kind <= kLast; kind = static_cast<CollectiveKind>(static_cast<int>(kind) + 1)) {
    const auto of = [&](bool in_job) {
      return borders([&](std::size_t bytes) { return usual_path(table, kind, size, bytes, in_job); });
    };
    text += fmt::format("{:<22}{:<45}{}\n", name_of(kind), of(true), of(false));
  }
  return text;
}

}  // namespace retinue
