#pragma once

#include <cstdint>

#include "retinue/collective/call.h"

namespace retinue {

/// Who gives in a collective, who takes, and what.
struct Pattern {
  enum class Result : std::uint8_t { kNothing, kParts, kReduction, kPrefix };

  Result result;
  bool only_root_gives = false;
  bool only_root_takes = false;
  bool part_per_taker = false;  ///< A giver has a part for each rank; otherwise all takers take the same one.

  /// Whether a taker keeps a part of each rank.
  constexpr bool takes_parts() const { return result == Result::kParts && !only_root_gives; }
};

constexpr Pattern pattern_of(CollectiveKind kind) {
  using Result = Pattern::Result;
  switch (kind) {
    case CollectiveKind::kBroadcast:
      return {.result = Result::kParts, .only_root_gives = true};
    case CollectiveKind::kScatter:
      return {.result = Result::kParts, .only_root_gives = true, .part_per_taker = true};
    case CollectiveKind::kGather:
      return {.result = Result::kParts, .only_root_takes = true};
    case CollectiveKind::kAllGather:
      return {.result = Result::kParts};
    case CollectiveKind::kAllToAll:
      return {.result = Result::kParts, .part_per_taker = true};
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllReduceCoalesced:
      return {.result = Result::kReduction};
    case CollectiveKind::kReduce:
      return {.result = Result::kReduction, .only_root_takes = true};
    case CollectiveKind::kReduceScatter:
      return {.result = Result::kReduction, .part_per_taker = true};
    case CollectiveKind::kScan:
      return {.result = Result::kPrefix};
    default:
      return {.result = Result::kNothing};
  }
}

constexpr bool is_reduction(CollectiveKind kind) {
  const Pattern::Result result = pattern_of(kind).result;
  return result == Pattern::Result::kReduction || result == Pattern::Result::kPrefix;
}

}  // namespace retinue
