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

/// Describes ranks that meet at a store.
struct StoreMeeting {
  std::shared_ptr<Store> store = nullptr;
  std::string name = "group";  ///< The same on all ranks. Part of keys, which begin with "retinue/", and of errors.
  int rank = 0;
  int size = 1;
  Deadline deadline = Deadline::never();  ///< For all steps.
  std::string call = "the meeting";  ///< Names the waiting call in reports, as "init_process_group at train.cpp:12".
  /// The time after which one of the waiting ranks reports on standard error which ranks haven't come, and again after
  /// times that double. 0: no reports. Default: RETINUE_LATE_AFTER_S, in seconds, or else 10 s.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
};

/// Gathers bytes of all ranks through a store. Rank 0 combines them into one value for the others, so a step costs each
/// rank two calls, regardless of the number of ranks.
///
/// Blocking: until all ranks have come to the step, at most to the deadline. Missing ranks are known up to 4 s later,
/// and a store that doesn't answer up to 10 s later.
/// Threads: one at a time.
/// Errors: on all ranks that have come: TimeoutError, which names the ranks that haven't, and ranks that seem to be two
/// processes; PeerLost if a rank of this host has died; UsageError if ranks give different numbers of ranks or
/// different sizes, or if two processes of one host are there as one rank. The store's errors. UsageError on its own
/// rank for a meeting without a store, or of a rank that isn't in [0, size).
/// After an error: the exchange can't be used any more.
class StoreExchange {
 public:
  explicit StoreExchange(StoreMeeting meeting);
  ~StoreExchange();
  StoreExchange(const StoreExchange&) = delete;
  StoreExchange& operator=(const StoreExchange&) = delete;

  /// Returns how often ranks have met there by that name, including this time. It is the same on all ranks, for use in
  /// keys of their own.
  std::int64_t number() const { return joined_; }

  /// Sends the `bytes` bytes at `own` to all ranks, and writes the bytes of all ranks, in rank order, to `all`.
  void all_gather(const void* own, void* all, std::size_t bytes);

  /// Checks all ranks of this host. For waits of another kind between the steps.
  /// Errors: PeerLost if a rank in the meeting has died, which is then also the error of the next step; the next step's
  /// error, if other ranks have already caused one.
  void check_that_others_live();

  /// Waits on rank 0 until the others have called this, too. For an error that all ranks know by now: rank 0 may serve
  /// the store, and may end its process because of that error. Blocking: 2 s at most.
  void leave_together() noexcept;

  /// Call this after the last step. Each rank other than 0 records that it has read what rank 0 sent. Returns to rank 0
  /// the keys by which it sees that all have done so, for when it ends the store; returns nothing to the others.
  /// Doesn't throw if the store is gone.
  std::vector<std::string> finish() noexcept;

 private:
  struct Arrival;

  std::string group() const;
  std::string key(const std::string& who) const;
  std::string prefix(std::int64_t number) const;
  /// Returns the key of the process that is in a meeting as that rank.
  std::string key_of_process(int rank) const;
  std::string key_of_reader(int rank) const;
  /// Returns how long to wait for an answer of the store to what is asked beside the wait, or when its time is over.
  std::chrono::nanoseconds patience() const;
  Deadline soon() const;
  /// Returns how often this or another process has joined as that rank, after adding `more`.
  std::int64_t joined(int rank, int more, Deadline deadline);
  /// Errors: UsageError if another process of this host is in a meeting as this rank; all ranks in that meeting get it,
  /// too.
  void refuse_duplicate(const Arrival& own);
  /// Returns how often this rank has joined by now: the meeting's number.
  std::int64_t join();
  void leave() noexcept;
  /// Errors: UsageError if another rank has given a larger or smaller number of ranks; the others throw it, too.
  void agree_on_size();
  /// Makes `text` an error of all ranks that are in, or come to, the first step of the meeting of that number.
  void fail_all(std::int64_t number, int size, const std::string& text);
  /// Describes ranks as which another process seems to have joined, too: "; rank 1 has come 2 times: ...".
  std::string twice_joined();
  std::vector<std::string> keys_of_others() const;
  /// Waits for the values of keys that other ranks set, and reports late ranks meanwhile.
  std::vector<std::string> await(const std::vector<std::string>& keys, Deadline deadline);
  /// As await(), but without reports. Errors: PeerLost if a rank of this host that should set one has died.
  std::vector<std::string> await_the_living(const std::vector<std::string>& keys, Deadline deadline);
  bool store_answers();
  std::optional<Arrival> arrival(int rank);
  /// Checks all ranks, or those that this rank depends on, if they are of this host. Errors: the error stored in place
  /// of this step's data.
  void look_at_others(bool all);
  /// Checks the ranks before `end`, and returns the error stored in place of this step's data, if any.
  std::optional<std::string> find_verdict(int end);
  bool is_rank_0_here();
  /// Reports late ranks: by one of the waiting ranks, or by each of them if the store doesn't answer.
  void report_late(std::chrono::nanoseconds waited, bool store_answers);
  std::vector<int> missing();
  std::vector<int> those_there();
  bool have_all_arrived(const std::vector<int>& late);
  std::string combine(std::string own);
  std::string take(const std::string& own);
  /// Throws the error stored in place of all ranks' data.
  [[noreturn]] static void throw_verdict(const std::string& verdict);
  /// Reports which ranks are missing, to the other ranks as well. `was_over`: the time had passed when this rank came
  /// to the step.
  [[noreturn]] void fail_missing(bool was_over = false);
  /// On rank 0, waits for `others` only.
  void leave_together(const std::vector<int>& others) noexcept;

  const StoreMeeting meeting_;
  Store& store_;
  const std::chrono::nanoseconds late_after_;
  Deadline looks_end_ = Deadline::never();  ///< While this rank waits, what it asks beside takes no longer.
  int step_ = 0;
  int reports_ = 0;  ///< Of all ranks, in this step.
  // Last: the constructor joins to know them, and joining uses what is above.
  const std::int64_t joined_;
  const std::string prefix_;  ///< Of this exchange's keys: each rank counts the exchanges that it made in the store.
};

}  // namespace retinue
