#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "collective/board/board.h"
#include "collective/board/path_table.h"
#include "collective/call/call.h"
#include "collective/call/select.h"
#include "collective/exchange_model.h"

/// Collectives at the sizes at which they change their path, in all combinations of what else matters.
namespace retinue::test {

/// What a member of a group of `ranks` gives where another path is taken, or another round begins. Units: bytes.
inline std::set<std::size_t> borders_of(const PathTable& table, std::size_t ranks) {
  std::set<std::size_t> borders;
  for (const std::size_t bytes :
       {line_space(ReduceOp::kPremulSum), line_space(ReduceOp::kSum), table.staged_in_job, table.staged_in_job_one_way,
        table.staged, table.staged_one_way, table.staged_reads / ranks, table.stored_plainly, kChunkBytes})
    borders.insert(bytes);
  return borders;
}

/// Elements of a part, at and beside each border, and hardly any.
inline std::set<std::size_t> counts_around_borders(const PathTable& table, CollectiveKind kind, std::size_t ranks,
                                                   std::size_t element_bytes) {
  std::set<std::size_t> counts{0, 1, 3};
  const std::size_t parts = pattern_of(kind).part_per_taker ? ranks : 1;
  const auto add = [&](std::size_t count) {
    for (const std::size_t near : {count, count + 1, count + 2})
      if (near > 0) counts.insert(near - 1);
  };
  for (const std::size_t border : borders_of(table, ranks)) add(border / (element_bytes * parts));
  // Where a part goes through chunks in rounds: five of the smallest.
  const std::size_t takers = parts > 1 ? parts - 1 : 1;
  const std::size_t space = std::min((table.smallest_chunk / takers + 63) / 64, kChunkBytes / takers / 64) * 64;
  add(5 * space / element_bytes);
  return counts;
}

/// The most elements that a member gives in any of these.
inline std::size_t most_elements(const PathTable& table, std::size_t ranks, std::size_t element_bytes) {
  std::size_t most = 0;
  for (const CollectiveKind kind : kDataKinds) {
    const std::size_t parts = pattern_of(kind).part_per_taker ? ranks : 1;
    most = std::max(most, *counts_around_borders(table, kind, ranks, element_bytes).rbegin() * parts);
  }
  return most;
}

/// An answer of chance to one question of many about a case: they don't depend on each other.
inline std::size_t pick(std::uint64_t seed, int question, std::size_t answers) {
  return hash(seed, question, 0) % answers;
}

/// With all that isn't given here by chance.
inline ExchangeCase case_by_chance(CollectiveKind kind, std::size_t count, int ranks, std::uint64_t seed) {
  return {.kind = kind,
          .count = count,
          .input_place = kPlaces[pick(seed, 0, std::size(kPlaces))],
          .output_place = kPlaces[pick(seed, 1, std::size(kPlaces))],
          .in_place = pick(seed, 2, 2) == 0,
          .root = static_cast<int>(pick(seed, 3, static_cast<std::size_t>(ranks))),
          .op = kOps[pick(seed, 4, std::size(kOps))],
          .seed = seed};
}

/// Values that are made once for many calls. Each call takes them from another one on, so that what an earlier call
/// left somewhere is wrong.
template <typename T>
class TableValues {
 public:
  TableValues(ReduceOp op, int ranks, std::size_t elements) : op_(op), given_(static_cast<std::size_t>(ranks)) {
    for (int rank = 0; rank < ranks; ++rank)
      given_[static_cast<std::size_t>(rank)] = test::elements<T>(17, rank, 0, elements + kMostShift);
  }

  /// To be called before reduced() of as many: what comes of the values of ranks 0 to before `ranks`.
  void reduce(int ranks) { reduced_[ranks] = test::reduced<T>(op_, {given_.begin(), given_.begin() + ranks}); }
  void begin_at(std::uint64_t seed) { shift_ = pick(seed, 5, kMostShift); }

  std::span<const T> given(int rank, std::size_t first, std::size_t count) const {
    return std::span(given_[static_cast<std::size_t>(rank)]).subspan(first + shift_, count);
  }
  std::span<const T> reduced(int ranks, std::size_t first, std::size_t count) const {
    return std::span(reduced_.at(ranks)).subspan(first + shift_, count);
  }

 private:
  static constexpr std::size_t kMostShift = 61;

  ReduceOp op_;
  std::vector<std::vector<T>> given_;
  std::map<int, std::vector<T>> reduced_;
  std::size_t shift_ = 0;
};

}  // namespace retinue::test
