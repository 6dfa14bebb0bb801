#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/board/board.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// Words for what went wrong in a group, from what its board shows.
class Reporter {
 public:
  /// `sequence`: this member's current call.
  Reporter(const JobGroup& group, const Board& board, std::uint64_t sequence)
      : group_(group), board_(board), sequence_(sequence) {}

  /// `own_wait`: what this member waits for where that is no collective.
  Reporter(const JobGroup& group, const Board& board, std::string own_wait)
      : group_(group), board_(board), sequence_(~std::uint64_t{0}), own_wait_(std::move(own_wait)) {}

  /// As "rank 0 waits in its 4th call, barrier, at train.cpp:88".
  std::string own_call() const;
  /// As "after 3 barriers, the last at train.cpp:88"; empty where the wait is for a message, and there was none.
  std::string history_of(int rank) const;
  /// As ", seen after 3 barriers, the last at train.cpp:88"; nothing where the wait is for a message and the rank has
  /// made no collective.
  std::string seen(int rank) const;
  std::int32_t pid_of(int rank) const;
  /// By a signal or a debugger: what it said of its wait is of before.
  bool stands_still(int rank) const;

  /// Where members that are late wait in this group, too, those for whom they wait, and so on to the ends; where they
  /// wait in a circle, they themselves.
  std::vector<int> late_at_the_ends(const std::vector<int>& late) const;

  std::string lost(const std::vector<int>& ranks) const;
  /// What a member that is late does, as "sleeps (nanosleep)".
  using ActivityOf = std::function<std::string(int rank, std::int32_t pid)>;
  std::string timed_out(const std::vector<int>& late, std::chrono::nanoseconds timeout,
                        const ActivityOf& activity_of) const;
  /// The same where others are lost.
  std::string missing(const std::vector<int>& late, const std::vector<int>& lost, std::chrono::nanoseconds timeout,
                      const ActivityOf& activity_of) const;
  std::string mismatch() const;
  /// A signal ended this member's wait.
  std::string interrupted() const;
  /// `giver` gives this member `given` bytes, and it takes `wanted`.
  std::string wrong_size(int giver, std::size_t given, std::size_t wanted) const;
  /// Members of an all_reduce_coalesced differ in the way that `what` says.
  std::string different_buffers(std::string_view what) const;
  /// The function by which this member reduces threw an exception that says `what`.
  std::string threw(std::string_view what) const;

 private:
  /// Of the user's.
  std::uint64_t calls_until(std::uint64_t sequence) const;
  std::string all_calls() const;
  std::string fate_of(int rank) const;
  /// Whether all calls of the member up to `newest` were of its kind, as far as that can be seen.
  bool are_of_one_kind(int rank, const SeenCall& newest) const;

  const JobGroup& group_;
  const Board& board_;
  std::uint64_t sequence_;
  std::string own_wait_;
};

/// What went wrong where the ranks of a group made these calls, the `number`-th of each.
std::string with_calls(std::string_view group, std::string_view what, std::uint64_t number,
                       std::span<const SeenCall> calls);
inline constexpr std::string_view kMetInDifferentCalls = "the ranks made different calls";

/// As "4th".
std::string ordinal(std::uint64_t n);
/// As "all_reduce(fp32, 1024, sum) at train.cpp:88".
std::string described_at(const SeenCall& call);
/// As "all_reduce(fp32, 1024, sum)".
std::string describe(const SeenCall& call);

}  // namespace retinue
