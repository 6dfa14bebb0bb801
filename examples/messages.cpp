// Heat that spreads along a rod whose pieces belong to ranks: in each step neighbours exchange the ends of their
// pieces, and at the end all pieces go to rank 0, which compares them with a rod that it computed alone.
#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "retinue/collective/communicator.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

namespace {

constexpr std::size_t kPoints = 12'000;
constexpr int kSteps = 500;

using Rod = std::vector<double>;

/// The points from `begin` on, with one more at each end: the neighbours', or those of the walls, which stay cold.
Rod hot_in_the_middle(std::size_t begin, std::size_t count) {
  Rod rod(count + 2);
  for (std::size_t i = 0; i < count; ++i)
    if (begin + i >= kPoints / 3 && begin + i < kPoints * 2 / 3) rod[i + 1] = 100;
  return rod;
}

/// One step at the points from `first` to before `last`.
void spread(const Rod& before, Rod& after, std::size_t first, std::size_t last) {
  for (std::size_t i = first; i < last; ++i)
    after[i] = before[i] + 0.25 * (before[i - 1] - 2 * before[i] + before[i + 1]);
}

// [exchange]
/// Exchanges the ends with both neighbours, and computes meanwhile what doesn't need theirs.
void step(retinue::Communicator& group, Rod& rod, Rod& next) {
  const std::size_t last = rod.size() - 2;
  std::vector<retinue::Request> requests;
  if (group.rank() > 0) {
    requests.push_back(group.irecv(std::span(&rod[0], 1), group.rank() - 1));
    requests.push_back(group.isend(std::span(&rod[1], 1), group.rank() - 1));
  }
  if (group.rank() + 1 < group.size()) {
    requests.push_back(group.irecv(std::span(&rod[last + 1], 1), group.rank() + 1));
    requests.push_back(group.isend(std::span(&rod[last], 1), group.rank() + 1));
  }
  spread(rod, next, 2, last);
  for (const retinue::Request& request : requests) request.wait();
  spread(rod, next, 1, 2);
  spread(rod, next, last, last + 1);
  std::swap(rod, next);
}
// [/exchange]

// [collect]
/// All pieces, at rank 0, in whatever order they come.
Rod collect(retinue::Communicator& group, const Rod& rod) {
  const std::size_t count = rod.size() - 2;
  const std::span piece(rod.data() + 1, count);
  if (group.rank() != 0) {
    group.send(piece, 0);
    return {};
  }
  Rod whole(kPoints);
  std::copy(piece.begin(), piece.end(), whole.begin());
  Rod buffer(count);
  for (int i = 1; i < group.size(); ++i) {
    const retinue::Received received = group.recv(buffer, retinue::kAnySource);
    std::copy(buffer.begin(), buffer.end(), whole.begin() + received.source * static_cast<std::ptrdiff_t>(count));
  }
  return whole;
}
// [/collect]

void heat(retinue::RankContext& context) {
  retinue::Communicator group(context.world());
  const std::size_t count = kPoints / static_cast<std::size_t>(group.size());
  Rod rod = hot_in_the_middle(static_cast<std::size_t>(group.rank()) * count, count);
  Rod next(rod.size());
  for (int i = 0; i < kSteps; ++i) step(group, rod, next);
  const Rod whole = collect(group, rod);
  if (group.rank() != 0) return;

  Rod alone = hot_in_the_middle(0, kPoints);
  Rod after(alone.size());
  for (int i = 0; i < kSteps; ++i) {
    spread(alone, after, 1, kPoints + 1);
    std::swap(alone, after);
  }
  if (!std::equal(whole.begin(), whole.end(), alone.begin() + 1)) throw std::runtime_error("the rods differ");
  fmt::print("messages: ok ranks={} points={} steps={}\n", group.size(), kPoints, kSteps);
}

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<heat>({.nprocs = 3});
}
