// For many members whose turns come one after the other: who came first need not wait until the last has come before it
// takes what others gave.
#include <algorithm>
#include <cstring>

#include "collective/kernels.h"
#include "collective/paths.h"

namespace retinue {
namespace {

bool may_find_all_staged(const Session& session, const Call& call) {
  if (session.size() < 3 || !call.pattern.takes_parts() || !call.takes || call.what.uneven) return false;
  if (call.overwrites_itself) return false;  // Where some give in another way, the input is needed once more.
  return (session.place(session.rank()) & kStaged) != 0 && call.given_bytes(session.size()) > line_room(call.shape.op);
}

}  // namespace

bool take_as_they_come(Session& session, const Call& call) {
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
      if (!session.has_line(giver)) return false;
      if (session.has_same_line(giver))
        copy_bytes(call.output_part(giver).data(), session.stage(giver) + at, part);
      else
        all = false;  // What is wrong with it, if anything, is told when all have come.
      return true;
    });
  }
  return all;
}

}  // namespace retinue
