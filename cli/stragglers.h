#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ipc/records/recorded_calls.h"

namespace retinue {

/// A rank of a job.
struct RankName {
  std::uint32_t context = 0;
  int rank = 0;

  auto operator<=>(const RankName&) const = default;
};

/// The rank for which the others waited longest.
struct Straggler {
  RankName rank;
  std::uint64_t last = 0;              ///< Collectives that it began last.
  std::uint64_t seen = 0;              ///< Of so many.
  std::chrono::nanoseconds waited{0};  ///< That the others waited for it, together.
};

/// Who comes last to collectives: takes the members' calls as they come to be known, in any order, and keeps a minute.
class Stragglers {
 public:
  void add(const RankName& rank, const RecordedGroup& group, const RecordedCall& call);
  /// Of the minute before `now_ns`, of CLOCK_MONOTONIC; nothing where no collective had all its members.
  std::optional<Straggler> worst(std::uint64_t now_ns);

 private:
  using Begun = std::pair<std::uint64_t, RankName>;  ///< When, and who.
  struct Sum {
    std::uint64_t last = 0;
    std::uint64_t waited_ns = 0;
  };
  struct Second {
    std::uint64_t seen = 0;
    std::map<RankName, Sum> ranks;
  };

  void add(const std::vector<Begun>& whole);

  /// By group: collectives, by sequence, of which not all members' calls are known.
  std::map<std::string, std::map<std::uint64_t, std::vector<Begun>>> pending_;
  std::map<std::uint64_t, Second> seconds_;
};

}  // namespace retinue
