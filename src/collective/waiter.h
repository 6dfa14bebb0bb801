#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "collective/board.h"
#include "ipc/job_clock.h"
#include "os/cpu_relax.h"

namespace retinue {

struct ProcessSlot;

/// Words that must all reach a target: one per member, at equal distances, for the ranks from `first` to before `last`.
struct WordSet {
  const std::byte* base;  ///< Rank 0's word.
  int first;
  int last;

  const std::atomic<std::uint64_t>& word(int rank) const {
    return *reinterpret_cast<const std::atomic<std::uint64_t>*>(base + static_cast<std::size_t>(rank) * sizeof(Member));
  }
};

/// How a member waits for others: spin while the late ones run elsewhere, yield when they would run on this CPU, park
/// when it takes long or when an unrelated program shares the CPU.
///
/// Lost wake-ups: a post is {store the word; load `parked`}, parking is {increment `parked`; load the words again}, all
/// four sequentially consistent. So either the poster sees who parks, or who parks sees the word.
///
/// Threads: one at a time.
class Waiter {
 public:
  enum class Outcome { kArrived, kLost, kTimedOut, kPoisoned };

  Waiter(const Board& board, const JobGroup& group, std::chrono::nanoseconds timeout);

  /// Blocking: until all words reached `target`, at most the timeout; or until a member that has not is gone.
  Outcome wait(const WordSet& words, std::uint64_t target) {
    int late = words.first;
    for (int spins = 0; spins <= eager_spins_; ++spins) {
      if (advance(words, target, late)) return Outcome::kArrived;
      cpu_relax();
    }
    return wait_long(words, target, late);
  }

  /// Blocking: until every word whose member is not lost reached `target`, poison or not.
  void wait_for_living(const WordSet& words, std::uint64_t target, JobDeadline deadline) const;

  /// Spins at most `budget` and looks at nothing but the words.
  static bool spin(const WordSet& words, std::uint64_t target, std::chrono::nanoseconds budget);

  /// To be called after a word was stored with memory_order_seq_cst: wakes those who parked for this member.
  void posted() {
    if (header_.parked.load(std::memory_order_seq_cst) != 0) ring_parked();
  }
  /// Wakes all members, for news that concern everybody.
  void ring_all();

  /// To be called when all members have made theirs: they may run on more CPUs together than one of them alone.
  void count_cpus();

  /// Tells the others where this thread runs.
  void note_cpu();

  bool is_lost(int rank) const;
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
  std::chrono::nanoseconds timeout() const { return timeout_; }

 private:
  /// Moves `late` to the first rank whose word is below `target`; true if there is none.
  static bool advance(const WordSet& words, std::uint64_t target, int& late) {
    while (words.word(late).load(std::memory_order_acquire) >= target)
      if (++late == words.last) return true;
    return false;
  }

  Outcome wait_long(const WordSet& words, std::uint64_t target, int late);
  Outcome wait_by_policy(const WordSet& words, std::uint64_t target, int late);
  bool find_reason_to_stop(const WordSet& words, std::uint64_t target, JobDeadline deadline, Outcome& outcome) const;
  bool shares_my_cpu(const WordSet& words, std::uint64_t target, int late) const;
  void yield_and_time();
  void park(const WordSet& words, std::uint64_t target, int late, JobDeadline deadline);
  void ring_parked();
  static void ring(Member& member);

  Board board_;
  BoardHeader& header_;
  Member& own_;
  int rank_;
  std::vector<ProcessSlot*> processes_;
  const JobMemory& memory_;
  std::chrono::nanoseconds timeout_;
  int eager_spins_ = 0;    ///< Spins before anything else is considered: none when ranks outnumber CPUs.
  bool crowded_ = false;   ///< More ranks than CPUs that they may use.
  int parked_waits_ = 0;   ///< Waits left that park at once, because a yield took a whole time slice.
  std::uint32_t cpu_ = 0;  ///< As last published, plus one.
};

}  // namespace retinue
