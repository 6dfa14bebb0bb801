#pragma once

#include <fmt/format.h>
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/collective/engine.h"

namespace retinue {

/// The ranks of a group that share no memory, as they say at its store who they are when they join, and how many calls
/// they have made when they leave; and which of them are lost.
///
/// Errors: the store's, where nothing else is said.
class RanksByStore {
 public:
  static constexpr std::chrono::seconds kPatience{2};  ///< With the store, in each call of it.
  static constexpr std::chrono::seconds kAfterTrouble{10};
  static constexpr std::chrono::seconds kBetweenLooks{1};  ///< Of a rank that waits, for a loss that another found.

  /// Says who this one is, at the members' store.
  explicit RanksByStore(const EngineMembers& members);

  /// This rank leaves with all its calls done: from here on nobody is to call it lost for one of them.
  void leave(std::uint64_t calls);
  /// Whether that rank left after this call or a later one. nullopt: the store doesn't answer, or did not in the last
  /// seconds.
  std::optional<bool> has_left_after(int rank, std::uint64_t sequence) noexcept;

  /// Asks who the others are, unless that is known. Blocking: until all have joined, at most 0.2 s; if they have, until
  /// the store answers, at most 2 s, and after that not for 10 s.
  void know_all(bool have_all_joined) noexcept;
  /// Others that have left before this call.
  std::vector<int> left_before(std::uint64_t sequence) noexcept;

  std::vector<int> others() const;
  std::vector<int> others_of_own_host();
  bool is_of_own_host(int rank) { return process(rank).host == process(rank_).host && !process(rank).host.empty(); }
  /// Whether its process has, as far as is known here.
  bool has_ended(int rank);
  /// Ranks of this host whose processes have ended, but for those that had left after this call.
  std::vector<int> ended(std::uint64_t sequence);
  /// Those whose processes have ended, without the store; none where nobody was asked for before.
  std::vector<int> ended_as_known() noexcept;
  /// As ended(). Blocking: at most 1 s, for one that is about to.
  std::vector<int> ended_soon(std::uint64_t sequence);

  /// Errors: PeerLost where another rank told of a loss; the store's.
  void take_loss_of_others();
  /// Tells the others of it; throws PeerLost, with the text and ranks of the one that told first, or the store's error.
  /// Blocking: until the others have taken it, as this rank may be the one that serves the store: at most 1.5 s, and
  /// 10 s for those of which `waiting` says that they wait in this call.
  [[noreturn]] void tell_loss(const std::vector<int>& lost,
                              const std::function<std::vector<int>(std::vector<int> others)>& waiting);

  pid_t pid(int rank) { return process(rank).pid; }
  /// As "pid 4711 on node-b".
  const std::string& where(int rank) { return process(rank).where; }
  /// As "rank 1 (pid 4711 on node-b)".
  std::string name_of(int rank) { return fmt::format("rank {} ({})", rank, where(rank)); }
  /// As "rank 1 (pid 4711 on node-b) has ended; rank 2 ...".
  std::string text_of_ended(const std::vector<int>& ranks);

 private:
  friend std::string describe_engine_process(const std::string& host);

  /// What stands at the store of each, a line each.
  struct Process {
    std::string host = {};  ///< An identity, not a name.
    std::string identity = {};
    pid_t pid = 0;
    std::string where = {};
    std::int64_t calls = -1;  ///< Once it has left; -1 before.

    std::string text() const;
    static Process of(const std::string& text);
    /// This process.
    static Process own(const std::string& host);
  };

  const Process& process(int rank);
  /// Blocking: until a process of another rank of this host may have ended. False: none will before the deadline.
  bool await_an_end(const Deadline& deadline);
  void ask(std::chrono::milliseconds patience);
  /// Whether those have taken the loss that was told. Blocking: until then, at most `patience`.
  bool await_taking(const std::vector<int>& others, std::chrono::milliseconds patience);

  std::shared_ptr<Store> store_;
  Process own_;
  int rank_;
  int size_;
  std::vector<Process> processes_;  ///< Known from the first question on.
  std::chrono::steady_clock::time_point asks_again_at_;
  std::chrono::steady_clock::time_point trouble_until_;  ///< With the store.
};

}  // namespace retinue
