#pragma once

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "collective/board/rendezvous.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

/// A member's wait, and what tells that nothing has gone on since: all but `looks` stays.
struct WaitReading {
  std::size_t group = 0;  ///< Index of its group.
  int rank = 0;
  std::uint64_t generation = 0;  ///< Of its group.
  std::uint64_t change = 0;
  std::uint64_t moves = 0;
  std::uint64_t progress = 0;
  std::uint64_t sequence = 0;
  std::uint64_t looks = 0;

  bool is_unchanged_since(const WaitReading& before) const {
    return generation == before.generation && rank == before.rank && change == before.change && moves == before.moves &&
           progress == before.progress && sequence == before.sequence;
  }
};

/// Waits that can't end, since all who could end them are in such waits themselves.
struct Deadlock {
  std::vector<SeenGroup> groups;
  std::vector<WaitReading> waits;  ///< All that it rests on, those of the cycle first.
  std::vector<std::string> texts;  ///< Of the cycle's waits, in its order.
  std::vector<int> who;            ///< Who waits so: ranks or, in several groups, pids.
  bool is_certain = false;         ///< False: a wait ends by itself, or another thread of a process may end it.
  bool has_messages = false;
  bool is_of_one_group = true;
};

/// Looks for one that the member's own wait is part of, in what the groups' members tell of their waits at this moment.
/// It is one only if a later look finds the same: see DeadlockWatch. Empty `waits`: there is none.
Deadlock find_deadlock(const std::vector<SeenGroup>& groups, const Board& own_board, int own_rank,
                       const JobMemory& memory);

/// One member's search, as long as it waits.
///
/// A deadlock is believed when two readings some time apart are identical, and each of its members has looked between
/// them for what it waits for, and found nothing: what was on its way at the first reading has arrived by then.
class DeadlockWatch {
 public:
  DeadlockWatch(const JobGroup& group, const Board& board) : group_(group), board_(board) {}

  /// Poisons the groups of a deadlock that is certain; says on standard error what looks like one. Returns whether it
  /// has found what may be one, so that it should look again soon.
  bool look();
  /// The wait has ended.
  void forget();

 private:
  bool is_unchanged(const Deadlock& now) const;
  bool all_have_looked(const Deadlock& now) const;
  void act(const Deadlock& deadlock);
  void poison_all(const Deadlock& deadlock, const std::set<std::size_t>& groups, const std::string& text);

  const JobGroup& group_;
  Board board_;
  Deadlock seen_;
  std::chrono::nanoseconds seen_at_{0};  ///< On the job's clock.
  bool has_told_ = false;
};

}  // namespace retinue
