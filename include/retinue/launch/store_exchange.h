#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "retinue/base/deadline.h"
#include "retinue/store/store.h"

namespace retinue {

/// Ranks that meet at a store.
struct StoreMeeting {
  std::shared_ptr<Store> store = nullptr;
  std::string name = "group";  ///< The same on all ranks: of keys, which begin with "retinue/", and in errors.
  int rank = 0;
  int size = 1;
  Deadline deadline = Deadline::never();  ///< For all steps.
  std::string call = "the meeting";       ///< What waits, in reports: as "init_process_group at train.cpp:12".
  /// One of the ranks that wait reports on standard error which have not come after so long, and again after times that
  /// double; 0: never. Default: what RETINUE_LATE_AFTER_S says, in seconds, or else 10 s.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
};

/// Gathers bytes of all ranks through a store; rank 0 makes one value of them for the others: a step costs each rank
/// two calls, whatever their number.
///
/// Blocking: until all ranks have come to the step, at most to the deadline; who is missing is known up to 4 s later,
/// and that the store doesn't answer up to 7 s.
/// Threads: one at a time.
/// Errors: on all ranks that have come, TimeoutError, which names those that have not, and those that seem to be two
/// processes; PeerLost where one of this host has died; UsageError where ranks say that they are differently many, or
/// give different sizes, or where two processes of one host are there as one rank. The store's. UsageError on its own
/// rank for a meeting without a store, or of a rank that isn't in [0, size).
/// After an error: it can't be used on.
class StoreExchange {
 public:
  explicit StoreExchange(StoreMeeting meeting);
  ~StoreExchange();
  StoreExchange(const StoreExchange&) = delete;
  StoreExchange& operator=(const StoreExchange&) = delete;

  /// How often ranks have met there by that name, this time included: the same on all, for keys of their own.
  std::int64_t number() const { return joined_; }

  /// Gives `bytes` bytes at `own` to all, and writes those of all, in rank order, to `all`.
  void all_gather(const void* own, void* all, std::size_t bytes);

  /// Looks at all ranks of this host; for waits of another kind between the steps.
  /// Errors: PeerLost where one that is in the meeting has died, which is the next step's, too; that step's, if others
  /// have made one.
  void check_that_others_live();

  /// For an error that all ranks know by now: rank 0, which may serve the store and end its process by that error,
  /// waits until the others have called this, too. Blocking: 2 s at most.
  void leave_together() noexcept;

  /// After the last step: another rank than 0 says that it has read what rank 0 gave. Returns the keys by which rank 0
  /// sees that all have, where it is to end the store; to others none. Never throws for a store that is gone.
  std::vector<std::string> finish() noexcept;

 private:
  struct Comer;

  std::string group() const;
  std::string key(const std::string& who) const;
  std::string prefix(std::int64_t number) const;
  /// Of the process that is in a meeting as that rank.
  std::string key_of_process(int rank) const;
  std::string key_of_reader(int rank) const;
  /// How often this or another process has joined as that rank. `more`: in addition.
  std::int64_t joined(int rank, int more, Deadline deadline);
  /// Errors: UsageError where another process of this host is in a meeting as this rank; all in that have it, too.
  void be_the_only_one(const Comer& own);
  /// Returns how often this rank has joined by now: the meeting's number.
  std::int64_t join();
  void leave() noexcept;
  /// Errors: UsageError where another rank has said that there are more ranks, or fewer; the others throw it, too.
  void agree_on_size();
  /// Makes it an error of all who are, or come, in the first step of the meeting of that number.
  void tell_all(std::int64_t number, int size, const std::string& text);
  /// Of ranks as which another process seems to have joined, too: "; rank 1 has come 2 times: ...".
  std::string twice_joined();
  std::vector<std::string> keys_of_others() const;
  /// Values of keys that others set, while late ones are reported.
  std::vector<std::string> await(const std::vector<std::string>& keys, Deadline deadline);
  /// The same without reports. Errors: PeerLost where one that should set them, of this host, has died.
  std::vector<std::string> await_the_living(const std::vector<std::string>& keys, Deadline deadline);
  bool store_answers();
  std::optional<Comer> comer(int rank);
  /// At the ranks before `end`, if they are of this host. Errors: what stands there in place of this step's data.
  void look_at(int end);
  /// What stands there in place of this step's data, if anything, after that look.
  std::optional<std::string> find_verdict(int end);
  bool is_rank_0_here();
  /// By one of those that wait, or, where the store doesn't answer, by each.
  void report_late(std::chrono::nanoseconds waited, bool store_answers);
  std::vector<int> missing();
  std::vector<int> those_there();
  bool have_all_come(const std::vector<int>& late);
  std::string combine(std::string own);
  std::string take(const std::string& own);
  /// What stands there in place of all ranks' data.
  [[noreturn]] static void throw_verdict(const std::string& verdict);
  /// Says who is missing, to the other ranks as well. `was_over`: the time, when this rank came to the step.
  [[noreturn]] void fail_missing(bool was_over = false);
  /// Of rank 0: waits for `others` alone.
  void leave_together(const std::vector<int>& others) noexcept;

  const StoreMeeting meeting_;
  Store& store_;
  const std::chrono::nanoseconds late_after_;
  const std::int64_t joined_;
  const std::string prefix_;  ///< Of this exchange's keys: each rank counts those that it made in the store.
  int step_ = 0;
  int reports_ = 0;  ///< Of all ranks, in this step.
};

}  // namespace retinue
