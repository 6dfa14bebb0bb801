#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collective/diagnosis/late_text.h"
#include "collective/engine/ranks_by_store.h"
#include "retinue/base/error.h"
#include "retinue/collective/engine.h"

namespace retinue {

/// Says who is late among ranks that share no memory: who waits for long in a call leaves word at the store where the
/// ranks met, and one of all that wait reports those that left none. What these do others of their hosts tell. A group
/// with a board needs no words: its reporter (diagnosis/late_report.h) reads there what each member does.
///
/// Threads: one at a time. Where the store fails nothing is said; calls go on.
class LateByStore {
 public:
  using Clock = std::chrono::steady_clock;

  /// Who waits leaves word after so long.
  static constexpr std::chrono::nanoseconds kFirstWord = std::chrono::seconds(1);

  /// A wait in a call, in words that are made when they are needed.
  struct Wait {
    std::uint64_t sequence = 0;
    Clock::time_point since = {};
    std::chrono::nanoseconds timeout{0};
    bool have_all_come = false;                         ///< To the call: who left no word is through, or stopped in it.
    std::function<std::string()> own = {};              ///< As "rank 0 waits in its 4th call, barrier, at a.cpp:88".
    std::function<std::string(int rank)> history = {};  ///< As "after 3 calls, the last barrier at a.cpp:80".
  };

  /// `late_after`: 0: nobody is reported.
  LateByStore(const EngineMembers& members, std::chrono::nanoseconds late_after);

  /// To be called while the wait goes on. Returns after how long to come again.
  /// Errors: PeerLost where a rank of this host is missing whose process has ended. Its children may hold its
  /// connections open.
  std::chrono::nanoseconds look(const Wait& wait);
  /// The ranks that were lost, as all ranks of the group say it: what another rank found, because of which it may have
  /// let go of this one; or, where this one `looks`, ranks of this host whose processes have ended before they were
  /// through. Blocking: for a process that is about to end, at most 1 s; then until the others know, at most 1.5 s, and
  /// 10 s for those that wait in this call, as this rank may be the one that serves the store.
  std::optional<PeerLost> agreed_loss(const Wait& wait, bool looks) noexcept;
  /// Those that did so before this call.
  std::vector<int> ranks_that_left(const Wait& wait) noexcept {
    return store_ ? ranks_->left_before(wait.sequence) : std::vector<int>();
  }
  /// This rank leaves the group, all its calls done.
  void leave(std::uint64_t calls) noexcept;
  /// Whether that rank is gone because it was through. Where nobody can be asked: whether it may be.
  bool has_left(int rank, const Wait& wait) noexcept;
  /// As "rank 1 (pid 4711 on node-b)".
  std::string name_of(int rank) { return ranks_->name_of(rank); }
  /// Who is missing, as "; missing: rank 1 (pid 4711 on node-b), seen after 3 calls, ...".
  /// Blocking: until all who can have left word, at most `patience`, which lets those do so that came just now. `lost`:
  /// ranks that can't.
  std::string missing_text(const Wait& wait, std::chrono::nanoseconds patience,
                           const std::vector<int>& lost = {}) noexcept;
  /// The group ends by this rank's timeout: all ranks are to say the same of it. Returns what the first one said.
  std::string agreed_timeout(const std::string& text) noexcept;
  /// What that one said; empty where the group did not end so, as far as is known.
  /// Blocking: some seconds where the time of one of them is over that has not said so yet.
  std::string timeout_of_others(std::uint64_t sequence) noexcept;
  /// The group's first call begins. Blocking: until all have joined, at most 0.2 s.
  void begin() noexcept {
    if (store_) ranks_->know_all(/*have_all_joined=*/false);
  }
  /// That call ended well.
  void end(std::uint64_t sequence) noexcept {
    if (store_) ranks_->know_all(/*have_all_joined=*/true);
    if (!own_keys_.empty()) withdraw(sequence);
  }

 private:
  /// What `question` finds at the store; `otherwise` where nobody can be asked.
  template <class Answer, class Question>
  Answer ask(Answer otherwise, Question question) noexcept {
    try {
      return store_ ? question() : otherwise;
    } catch (const std::exception&) {
      return otherwise;
    }
  }
  std::chrono::nanoseconds look_now(const Wait& wait, std::chrono::nanoseconds waited);
  void publish_word(const Wait& wait);
  /// To the store: since when this rank waits, for how long at most, and in what.
  void set_word(std::uint64_t sequence, std::chrono::nanoseconds end);
  void check_that_others_live(const Wait& wait);
  [[noreturn]] void tell_loss(const std::vector<int>& lost, const Wait& wait);
  /// Where the store is gone, or stands still, as it does where a child of the dead rank that served it goes on.
  void check_without_store(const Wait& wait);
  /// For the others: what those of `late` do that are of this host.
  void post_activities(const Wait& wait, const std::vector<int>& late);
  void report(const Wait& wait);
  /// Removes the words of earlier calls, in which nobody waits any more when all came to this one.
  void withdraw(std::uint64_t sequence) noexcept;

  /// Of `ranks`, those that left no word.
  std::vector<int> missing(std::uint64_t sequence, const std::vector<int>& ranks);
  std::vector<std::string> words_of_waiting(const Wait& wait, const std::vector<int>& missing);
  /// What stands there, if anything.
  std::optional<std::string> find(const std::string& key);
  /// Whether the time of one that left word in that call is over, by this host's clock.
  bool is_time_over(std::uint64_t sequence);

  std::shared_ptr<Store> store_;       ///< Null where there is none, or it is gone.
  std::optional<RanksByStore> ranks_;  ///< Where there is, or was, a store.
  std::shared_ptr<JobMemory> memory_;
  std::string group_;
  int rank_;
  int size_;
  std::chrono::nanoseconds late_after_;
  // Of the wait that is under way:
  bool has_published_word_ = false;
  std::string own_text_;
  std::chrono::nanoseconds began_{0};  ///< By the wall clock.
  /// Those that had left no word so long before a report that they would have left one by then.
  std::vector<int> suspects_;
  std::chrono::nanoseconds suspected_after_{0};  ///< So much of the wait; 0: not yet.
  LooksAtProcesses first_looks_;
  std::chrono::nanoseconds next_report_{0};
  int reports_ = 0;  ///< Of all ranks.
  /// Words that this rank left, and in which calls.
  std::vector<std::pair<std::uint64_t, std::string>> own_keys_;
};

}  // namespace retinue
