// For many members whose turns come one after the other: who came first need not wait until the last has come before it
// takes what others gave.
#include <algorithm>
#include <cstring>

#include "collective/algorithms/paths.h"
#include "collective/kernels/kernels.h"

namespace retinue {
namespace {

bool may_find_all_staged(const Session& session, const Call& call) {
  if (session.size() < 3 || !call.pattern.takes_parts() || !call.takes || call.what.uneven) return false;
  if (session.relays(call) || call.overwrites_itself)
    return false;  // Where some give in another way, the input is needed once more.
  const std::size_t bytes = call.given_bytes(session.size());
  // The root of a gather says so of any size.
  return (session.place(session.rank()) & kStaged) != 0 && bytes > line_space(call.shape.op) && bytes <= kStageBytes;
}

bool has_line(const Session& session, int rank) {
  return session.line(rank).sequence.load(std::memory_order_acquire) >= session.sequence();
}

/// Of a line that is there: whether it is this member's too, but for where the data are.
bool has_same_line(const Session& session, int rank) {
  const LineData& own = session.line(session.rank());
  const LineData& other = session.line(rank);
  const std::uint64_t differences =
      own.head.load(std::memory_order_relaxed) ^ other.head.load(std::memory_order_relaxed);
  constexpr std::uint64_t kMattering = ~kPlaceMask | std::uint64_t{kUneven | kStaged} << 24;
  return (differences & kMattering) == 0 &&
         own.count.load(std::memory_order_relaxed) == other.count.load(std::memory_order_relaxed);
}

}  // namespace

bool take_in_arrival_order(Session& session, const Call& call) {
  if (!may_find_all_staged(session, call)) return false;
  const int size = session.size();
  const int rank = session.rank();
  const std::size_t part = call.part_bytes();
  const std::size_t at = call.pattern.part_per_taker ? static_cast<std::size_t>(rank) * part : 0;
  const Bytes own = call.output_part(rank);
  if (own.data() != call.input_part(rank).data()) std::memmove(own.data(), call.input_part(rank).data(), part);
  // Each member begins with its neighbour, so that not all read the same buffer at once.
  std::vector<int>& pending = session.scratch().ranks;
  pending.clear();
  for (int step = 1; step < size; ++step) pending.push_back((rank + step) % size);
  bool all = true;
  const JobDeadline deadline = session.deadline();
  while (!pending.empty()) {
    session.await_any_line(pending, deadline);
    std::erase_if(pending, [&](int giver) {
      if (!has_line(session, giver)) return false;
      if (has_same_line(session, giver))
        copy_bytes(call.output_part(giver).data(), session.stage(giver) + at, part);
      else
        all = false;  // What is wrong with it, if anything, is told when all have come.
      return true;
    });
  }
  return all;
}

}  // namespace retinue
