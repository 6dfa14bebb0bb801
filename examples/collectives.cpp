// Sorts numbers that are spread over ranks: each rank sorts its own, the ranks agree on where to cut, and every rank
// gets the numbers of one range from all others.
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

namespace {

using Numbers = std::vector<std::uint32_t>;

Numbers numbers_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  Numbers numbers(count);
  for (auto& number : numbers) number = static_cast<std::uint32_t>(random());
  return numbers;
}

// [cuts]
/// Where the ranges of the ranks end: the same on all of them.
Numbers agree_on_cuts(retinue::Communicator& group, const Numbers& sorted) {
  const auto ranks = static_cast<std::size_t>(group.size());
  Numbers samples;
  for (std::size_t i = 0; i < ranks; ++i) samples.push_back(sorted[i * sorted.size() / ranks]);
  Numbers all(ranks * ranks);
  group.all_gather(std::span<const std::uint32_t>(samples), std::span(all));
  std::sort(all.begin(), all.end());
  Numbers cuts;
  for (std::size_t i = 1; i < ranks; ++i) cuts.push_back(all[i * ranks]);
  return cuts;
}
// [/cuts]

// [exchange]
/// Gives each rank what lies in its range, and returns what the others gave: one run per rank, each sorted.
Numbers exchange(retinue::Communicator& group, const Numbers& sorted, const Numbers& cuts) {
  const auto ranks = static_cast<std::size_t>(group.size());
  // How many numbers go to each rank, and, after this, how many come from each.
  std::vector<std::uint64_t> given(ranks);
  std::vector<std::uint64_t> taken(ranks);
  std::vector<retinue::ConstBytes> inputs;
  auto begin = sorted.begin();
  for (std::size_t i = 0; i < ranks; ++i) {
    const auto end = i < cuts.size() ? std::lower_bound(begin, sorted.end(), cuts[i]) : sorted.end();
    inputs.push_back(std::as_bytes(std::span(begin, end)));
    given[i] = static_cast<std::uint64_t>(end - begin);
    begin = end;
  }
  group.all_to_all(std::span<const std::uint64_t>(given), std::span(taken));

  std::size_t count = 0;
  for (const std::uint64_t part : taken) count += part;
  Numbers mine(count);
  std::vector<retinue::Bytes> outputs;
  auto to = mine.begin();
  for (const std::uint64_t part : taken) {
    outputs.push_back(std::as_writable_bytes(std::span(to, part)));
    to += static_cast<std::ptrdiff_t>(part);
  }
  group.run(retinue::CollectiveCall::all_to_all(inputs, outputs));
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

/// Looks at everything once more, at rank 0.
bool is_sorted_everywhere(retinue::Communicator& group, const Numbers& mine, std::uint64_t place, std::size_t wanted) {
  std::vector<std::uint64_t> report{place, mine.size(), std::is_sorted(mine.begin(), mine.end()) ? 1u : 0u,
                                    mine.empty() ? 0u : mine.front(), mine.empty() ? 0u : mine.back()};
  std::vector<std::uint64_t> all(group.rank() == 0 ? report.size() * static_cast<std::size_t>(group.size()) : 0);
  group.gather(std::span<const std::uint64_t>(report), std::span(all), 0);
  std::uint64_t count = 0;
  std::uint64_t largest = 0;
  bool sorted = true;
  for (std::size_t i = 0; i < all.size(); i += report.size()) {
    sorted = sorted && all[i] == count && all[i + 2] == 1 && (all[i + 1] == 0 || all[i + 3] >= largest);
    count += all[i + 1];
    largest = std::max(largest, all[i + 4]);
  }
  sorted = group.rank() != 0 || (sorted && count == wanted);
  group.broadcast(std::span(&sorted, 1), 0);
  return sorted;
}

void sort_together(retinue::RankContext& context, std::size_t count) {
  retinue::Communicator group(context.world());
  Numbers numbers = numbers_of(group.rank(), count);
  std::sort(numbers.begin(), numbers.end());
  Numbers mine = exchange(group, numbers, agree_on_cuts(group, numbers));
  std::sort(mine.begin(), mine.end());
  const std::size_t all = count * static_cast<std::size_t>(group.size());
  if (!is_sorted_everywhere(group, mine, first_place(group, mine), all))
    throw std::runtime_error("the numbers are not sorted");
  if (group.rank() == 0) fmt::print("collectives: ok ranks={} numbers={}\n", group.size(), all);
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<sort_together>({.nprocs = 4}, std::size_t{250'000});
}
