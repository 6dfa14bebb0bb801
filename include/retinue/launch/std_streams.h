#pragma once

#include <map>
#include <string>

namespace retinue {

/// Standard streams of a rank, as a bit mask.
enum class Std : unsigned { kNone = 0, kOut = 1, kErr = 2, kAll = 3 };

constexpr bool has(Std streams, Std one) noexcept {
  return (static_cast<unsigned>(streams) & static_cast<unsigned>(one)) != 0;
}

/// Streams by local rank.
class StdByRank {
 public:
  /// Selects the same streams for all ranks.
  StdByRank(Std all = Std::kNone) : others_(all) {}  // NOLINT(google-explicit-constructor): reads as an option.
  /// Selects streams for single ranks, and none for ranks that are left out.
  StdByRank(std::map<int, Std> by_rank) : by_rank_(std::move(by_rank)) {}  // NOLINT(google-explicit-constructor)

  /// Parses "3" as both streams of all ranks, and "0:1,12:3" as streams of these ranks. Errors: UsageError.
  static StdByRank parse(const std::string& text);

  Std of(int local_rank) const {
    const auto found = by_rank_.find(local_rank);
    return found == by_rank_.end() ? others_ : found->second;
  }
  /// Returns whether any of the local ranks below `ranks` has a stream.
  bool any(int ranks) const;
  /// Returns whether it was made for single ranks.
  bool names_ranks() const { return !by_rank_.empty(); }
  /// Return the largest and the smallest rank that is named, or -1 if none is.
  int largest_rank() const { return by_rank_.empty() ? -1 : by_rank_.rbegin()->first; }
  int smallest_rank() const { return by_rank_.empty() ? -1 : by_rank_.begin()->first; }

 private:
  Std others_ = Std::kNone;
  std::map<int, Std> by_rank_;
};

}  // namespace retinue
