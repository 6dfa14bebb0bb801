#pragma once

#include <sched.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "collective/board/board.h"
#include "collective/wait/awaited.h"
#include "collective/wait/long_wait.h"
#include "ipc/memory/job_clock.h"
#include "os/sync/cpu_relax.h"
#include "retinue/collective/options.h"

namespace retinue {

struct ProcessSlot;

/// What a member does now and then while it waits for something else.
class Background {
 public:
  virtual void advance() = 0;
  /// Grows with everything that it has done.
  virtual std::uint64_t moves() const = 0;

 protected:
  ~Background() = default;
};

/// How a member waits for others: spin while the late ones run elsewhere, yield when they would run on this CPU, park
/// when it takes long or when an unrelated program shares the CPU.
///
/// Lost wake-ups: a post is {store the word; load `parked`}, parking is {increment `parked`; load the words again}, all
/// four sequentially consistent, whatever `Awaited` looks at. So either the poster sees who parks, or who parks sees
/// the word.
///
/// Threads: one at a time.
class Waiter {
 public:
  enum class Outcome { kArrived, kLost, kTimedOut, kPoisoned, kInterrupted };

  Waiter(const Board& board, const JobGroup& group, const CommunicatorOptions& options);

  /// Blocking: until all words reached `target`, at most the timeout; or until a member that has not is gone.
  Outcome wait(const WordSet& words, std::uint64_t target) {
    int late = words.first;
    for (int spins = 0; spins <= eager_spins_; ++spins) {
      if (words.advance(target, late)) return Outcome::kArrived;
      if (spins >= kHotSpins) cpu_relax();
    }
    return wait_long(words, target, late);
  }

  /// Blocking: the same for what `awaited` says.
  Outcome wait(Awaited& awaited, JobDeadline deadline) {
    for (int spins = 0; spins <= eager_spins_; ++spins) {
      if (awaited.arrived()) return Outcome::kArrived;
      if (spins >= kHotSpins) cpu_relax();
    }
    return wait_long(awaited, deadline);
  }

  /// As often as it spins before anything else. Where ranks share CPUs, it yields in between.
  template <typename Look>
  void look_eagerly(Look look) const {
    for (int spins = 0; spins <= kEagerSpins && !look(); ++spins) {
      if (crowded_)
        sched_yield();
      else if (spins >= kHotSpins)
        cpu_relax();
    }
  }

  void set_background(Background* background) { background_ = background; }

  /// Blocking: until no member that isn't lost has the word `value`, poison or not.
  void wait_until_none_is_at(const WordSet& words, std::uint64_t value, JobDeadline deadline) const;

  /// To be called after a word was stored with memory_order_seq_cst: wakes those who parked for this member.
  void posted() {
    if (header_.parked.load(std::memory_order_seq_cst) != 0) ring_parked();
  }
  /// The same after a word was stored for one member alone.
  void posted_to(int rank) {
    if (header_.parked.load(std::memory_order_seq_cst) != 0) ring_if_parked(board_.member(rank));
  }
  /// Wakes this member, which another thread of its may have to be parked. Threads: any.
  void ring_own() { ring(own_); }

  /// To be called when all members have made theirs: they may run on more CPUs together than one of them alone.
  void count_cpus();

  /// Tells the others where this thread runs.
  void note_cpu();

  bool is_lost(int rank) const;
  /// More members than CPUs that they may use, or than their cgroups leave them; the same on all of them.
  bool is_crowded() const { return crowded_; }
  /// Whether it spins before anything else: there is a CPU for each rank, and it isn't polite.
  bool spins() const { return eager_spins_ > 0; }
  void set_timeout(std::chrono::nanoseconds timeout) { timeout_ = timeout; }
  /// How long a member sleeps before it looks up by itself, which hides a lost wake-up from tests.
  void set_look_up(std::chrono::nanoseconds look_up) { look_up_ = look_up; }
  std::chrono::nanoseconds timeout() const { return timeout_; }
  /// What is known of the last wait, if it was a long one.
  const LongWait& long_wait() const { return long_wait_; }
  LongWait& long_wait() { return long_wait_; }

 private:
  /// Who is about to come is seen sooner without pauses; who is not, disturbs it less by them.
  static constexpr int kHotSpins = 16;
  static constexpr int kEagerSpins = 48;

  Outcome wait_long(const WordSet& words, std::uint64_t target, int late);
  Outcome wait_long(Awaited& awaited, JobDeadline deadline);
  Outcome wait_by_policy(Awaited& awaited, JobDeadline deadline);
  bool look(Awaited& awaited);
  bool find_reason_to_stop(Awaited& awaited, JobDeadline deadline, Outcome& outcome) const;
  bool shares_my_cpu(const Awaited& awaited) const;
  void yield_and_time();
  /// Goes to the CPU with the fewest members, where this one's has too many of them.
  void find_cpu();
  void park(Awaited& awaited, JobDeadline deadline);
  void ring_parked();
  static void ring_if_parked(Member& member);
  static void ring(Member& member);

  Board board_;
  BoardHeader& header_;
  Member& own_;
  int rank_;
  LongWait long_wait_;
  std::vector<ProcessSlot*> processes_;
  const JobMemory& memory_;
  std::chrono::nanoseconds timeout_;
  std::chrono::nanoseconds look_up_;
  std::chrono::nanoseconds spin_budget_;  ///< None: park at once.
  int eager_spins_ = 0;                   ///< Spins before anything else is considered: none when ranks outnumber CPUs.
  bool crowded_ = false;
  int parked_waits_ = 0;  ///< Waits left that park instead of yielding, which took a whole time slice.
  int long_yields_ = 0;   ///< One after the other.
  int yields_to_move_;    ///< Yields left before it looks for another CPU.
  Background* background_ = nullptr;
  std::uint32_t cpu_ = 0;         ///< As last published, plus one.
  std::vector<int> member_cpus_;  ///< Scratch.
};

}  // namespace retinue
