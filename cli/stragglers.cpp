#include "stragglers.h"

#include <algorithm>

namespace retinue {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint64_t kKeptSeconds = 60;
/// Of a group. Those whose other members are not seen, as their calls came too fast, make room.
constexpr std::size_t kMostPending = 8192;

}  // namespace

void Stragglers::add(const RankName& rank, const RecordedGroup& group, const RecordedCall& call) {
  if (group.size < 2) return;
  auto& pending = pending_[group.name];
  const auto found = pending.try_emplace(call.sequence).first;
  std::vector<Begun>& begun = found->second;
  // A new group of the same name counts from 1 again.
  if (std::ranges::count(begun, rank, &Begun::second) > 0) begun.clear();
  begun.emplace_back(call.started_ns, rank);
  if (begun.size() >= static_cast<std::size_t>(group.size)) {
    add(begun);
    pending.erase(found);
  }
  if (pending.size() > kMostPending) pending.erase(pending.begin());
}

void Stragglers::add(const std::vector<Begun>& whole) {
  const Begun& last = *std::ranges::max_element(whole);
  Second& second = seconds_[last.first / kSecond];
  ++second.seen;
  Sum& sum = second.ranks[last.second];
  ++sum.last;
  for (const Begun& begun : whole) sum.waited_ns += last.first - begun.first;
}

std::optional<Straggler> Stragglers::worst(std::uint64_t now_ns) {
  const std::uint64_t now = now_ns / kSecond;
  seconds_.erase(seconds_.begin(), seconds_.lower_bound(now - std::min(now, kKeptSeconds)));
  std::map<RankName, Sum> sums;
  std::uint64_t seen = 0;
  for (const auto& [when, second] : seconds_) {
    seen += second.seen;
    for (const auto& [rank, sum] : second.ranks) {
      sums[rank].last += sum.last;
      sums[rank].waited_ns += sum.waited_ns;
    }
  }
  if (sums.empty()) return std::nullopt;
  const auto worst = std::ranges::max_element(sums, {}, [](const auto& each) { return each.second.waited_ns; });
  return Straggler{.rank = worst->first,
                   .last = worst->second.last,
                   .seen = seen,
                   .waited = std::chrono::nanoseconds(worst->second.waited_ns)};
}

}  // namespace retinue
