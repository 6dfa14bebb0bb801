#include "retinue/launch/std_streams.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

#include "base/parse_number.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

[[noreturn]] void refuse(const std::string& text, std::string_view reason) {
  throw UsageError(
      fmt::format("streams '{}': {}; write 0 (none), 1 (stdout), 2 (stderr) or 3 (both) for all ranks, or RANK:STREAMS "
                  "pairs, for example 0:1,12:3",
                  text, reason));
}

int number_of(std::string_view word, const std::string& text) {
  const std::optional<int> number = parse_number<int>(word);
  if (!number || *number < 0) refuse(text, fmt::format("'{}' is not a number", word));
  return *number;
}

Std streams_of(std::string_view word, const std::string& text) {
  const int mask = number_of(word, text);
  if (mask > 3) refuse(text, fmt::format("there is no stream {}", mask));
  return static_cast<Std>(mask);
}

}  // namespace

StdByRank StdByRank::parse(const std::string& text) {
  if (text.find(':') == std::string::npos) return streams_of(text, text);
  std::map<int, Std> by_rank;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find(','));
    const auto colon = pair.find(':');
    if (colon == std::string_view::npos) refuse(text, fmt::format("'{}' is not a RANK:STREAMS pair", pair));
    const int rank = number_of(pair.substr(0, colon), text);
    if (!by_rank.emplace(rank, streams_of(pair.substr(colon + 1), text)).second)
      refuse(text, fmt::format("rank {} is given twice", rank));
    rest.remove_prefix(pair.size());
    if (rest == ",") refuse(text, "it ends with a comma");
    rest.remove_prefix(rest.empty() ? 0 : 1);
  }
  return by_rank;
}

bool StdByRank::any(int ranks) const {
  for (int rank = 0; rank < ranks; ++rank)
    if (of(rank) != Std::kNone) return true;
  return false;
}

}  // namespace retinue
