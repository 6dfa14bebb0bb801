// Sorts numbers that are spread over ranks: each rank sorts its own, the ranks agree on where to cut, and every rank
// gets the numbers of one range from all others.
#include <fmt/core.h>

// [includes]
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/ipc/job_allocator.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
// [/includes]

namespace {

using Numbers = std::vector<std::uint32_t>;

// [numbers]
/// Many, and in job memory: the other ranks read them where they lie.
using SharedNumbers = retinue::JobVector<std::uint32_t>;

SharedNumbers numbers_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  SharedNumbers numbers(count);
  for (auto& number : numbers) number = static_cast<std::uint32_t>(random());
  return numbers;
}
// [/numbers]

// [cuts]
/// Where the ranges of the ranks end: the same on all of them.
Numbers agree_on_cuts(retinue::Communicator& group, const SharedNumbers& sorted) {
  const auto ranks = static_cast<std::size_t>(group.size());
  Numbers samples;
  for (std::size_t i = 0; i < ranks; ++i) samples.push_back(sorted[i * sorted.size() / ranks]);
  Numbers all(ranks * ranks);
  group.all_gather(samples, all);
  std::sort(all.begin(), all.end());
  Numbers cuts;
  for (std::size_t i = 1; i < ranks; ++i) cuts.push_back(all[i * ranks]);
  return cuts;
}
// [/cuts]

// [exchange]
/// Gives each rank what lies in its range, and returns what the others gave: one run per rank, each sorted.
Numbers exchange(retinue::Communicator& group, const SharedNumbers& sorted, const Numbers& cuts) {
  const auto ranks = static_cast<std::size_t>(group.size());
  // How many numbers go to each rank, and, after this, how many come from each.
  std::vector<std::uint64_t> given(ranks);
  std::vector<std::uint64_t> taken(ranks);
  auto begin = sorted.begin();
  for (std::size_t i = 0; i < ranks; ++i) {
    const auto end = i < cuts.size() ? std::lower_bound(begin, sorted.end(), cuts[i]) : sorted.end();
    given[i] = static_cast<std::uint64_t>(end - begin);
    begin = end;
  }
  group.all_to_all(given, taken);

  Numbers mine(std::accumulate(taken.begin(), taken.end(), std::size_t{0}));
  group.all_to_all(sorted, given, mine, taken);
  return mine;
}
// [/exchange]

// [place]
/// The place of this rank's first number among the numbers of all ranks.
std::uint64_t first_place(retinue::Communicator& group, const Numbers& mine) {
  const std::uint64_t own = mine.size();
  std::uint64_t until_here = 0;
  group.scan(std::span(&own, 1), std::span(&until_here, 1));
  return until_here - own;
}
// [/place]

// [reduction]
/// Neighbouring numbers, as far as it matters whether all are sorted.
struct Run {
  std::uint64_t begin;
  std::uint64_t count;
  std::uint32_t first;
  std::uint32_t last;
  bool sorted;
};

/// What two neighbours are together: the lower ranks' come first.
Run join(const Run& left, const Run& right) {
  Run both{left.begin, left.count + right.count, left.first, right.last, false};
  if (left.count == 0) both.first = right.first;
  if (right.count == 0) both.last = left.last;
  const bool in_order = left.count == 0 || right.count == 0 || left.last <= right.first;
  both.sorted = left.sorted && right.sorted && in_order && left.begin + left.count == right.begin;
  return both;
}

/// Looks at everything once more.
bool is_sorted_everywhere(retinue::Communicator& group, const Numbers& mine, std::uint64_t place, std::size_t wanted) {
  Run run{place, mine.size(), 0, 0, std::is_sorted(mine.begin(), mine.end())};
  if (!mine.empty()) run.first = mine.front(), run.last = mine.back();
  group.all_reduce<join>(std::span(&run, 1));
  return run.sorted && run.begin == 0 && run.count == wanted;
}
// [/reduction]

// [coalesced]
/// What sorting must not change: how many numbers have each low byte, and the sum of all.
struct Contents {
  std::array<std::uint64_t, 256> by_low_byte{};
  std::uint64_t sum = 0;
  bool operator==(const Contents&) const = default;
};

Contents contents_of_all(retinue::Communicator& group, std::span<const std::uint32_t> mine) {
  Contents contents;
  for (const std::uint32_t number : mine) {
    ++contents.by_low_byte[number % 256];
    contents.sum += number;
  }
  const std::array<retinue::Bytes, 2> buffers{std::as_writable_bytes(std::span(contents.by_low_byte)),
                                              std::as_writable_bytes(std::span(&contents.sum, 1))};
  group.all_reduce_coalesced(buffers, retinue::Dtype::kUint64, retinue::ReduceOp::kSum);
  return contents;
}
// [/coalesced]

void sort_together(retinue::RankContext& context, std::size_t count) {
  retinue::Communicator group(context.world());
  SharedNumbers numbers = numbers_of(group.rank(), count);
  const Contents contents = contents_of_all(group, numbers);
  std::sort(numbers.begin(), numbers.end());
  Numbers mine = exchange(group, numbers, agree_on_cuts(group, numbers));
  std::sort(mine.begin(), mine.end());
  const std::size_t all = count * static_cast<std::size_t>(group.size());
  if (!is_sorted_everywhere(group, mine, first_place(group, mine), all))
    throw std::runtime_error("the numbers are not sorted");
  if (contents_of_all(group, mine) != contents) throw std::runtime_error("these are other numbers");
  if (group.rank() == 0) fmt::print("collectives: ok ranks={} numbers={}\n", group.size(), all);
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<sort_together>({.nprocs = 4}, std::size_t{250'000});
}
