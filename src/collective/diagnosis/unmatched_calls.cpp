#include "collective/diagnosis/unmatched_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "collective/diagnosis/report.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

bool has_left(const Board& board, int rank) {
  return board.member(rank).state.load(std::memory_order_seq_cst) == MemberState::kLeft;
}

bool may_meet(const Board& board, int one, int other, std::uint64_t sequence) {
  const auto head_of = [&](int rank) {
    return board.member(rank).lines[sequence % kLines].head.load(std::memory_order_relaxed);
  };
  return !is_head_of(head_of(one), sequence) || !is_head_of(head_of(other), sequence) ||
         heads_may_meet(head_of(one), head_of(other));
}

void report_once(const Board& board, std::string_view text, std::string_view why) {
  if (board.header().unmatched_reported.exchange(1, std::memory_order_relaxed) == 0)
    write_standard_error(fmt::format("retinue: {}; {}, so no call failed\n", text, why));
}

}  // namespace

void report_unmatched_calls(const JobGroup& group, const Board& board, std::uint64_t agreed) {
  const int own = group.rank;
  const std::uint64_t calls = board.newest_sequence(own);
  for (int rank = 0; rank < board.size(); ++rank) {
    if (rank == own || !has_left(board, rank)) continue;
    const std::uint64_t theirs = board.newest_sequence(rank);
    for (std::uint64_t sequence = agreed + 1; sequence <= std::min(calls, theirs); ++sequence)
      if (!may_meet(board, own, rank, sequence))
        return report_once(board, Reporter(group, board, sequence).mismatch(),
                           "no rank waited for another in this call");
    if (calls == theirs) continue;
    const Reporter report(group, board, ~std::uint64_t{0});
    return report_once(
        board,
        fmt::format("group \"{}\": the ranks left after different numbers of calls: rank {} {}; rank {} {}", group.name,
                    std::min(own, rank), report.history_of(std::min(own, rank)), std::max(own, rank),
                    report.history_of(std::max(own, rank))),
        "no rank waited for a call that another rank didn't make");
  }
}

void suppress_unmatched_calls(const Board& board) {
  board.header().unmatched_reported.store(1, std::memory_order_relaxed);
}

}  // namespace retinue
