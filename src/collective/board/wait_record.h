#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace retinue {

/// What a member waits for, once that has taken long, as others see it.
struct SeenWait {
  std::uint64_t change = 0;           ///< Another number: another wait, or for others.
  std::chrono::nanoseconds since{0};  ///< On the job's clock.
  bool needs_only_one = false;        ///< Of those that are late.
  bool is_certain = false;            ///< Only they can end it: not this process, by itself or by the wait's own end.
  bool is_for_message = false;        ///< And not for a collective.
  bool has_other_threads = false;     ///< Its process, which may do other things meanwhile.
  std::vector<int> late;
  std::string text;  ///< As "rank 0 waits in its 4th call, barrier, at train.cpp:88".

  /// Whether it can't end without each of those that are late.
  bool needs_all() const { return !late.empty() && !needs_only_one && is_certain; }
  /// Whether it is the same wait, whatever its `change`.
  bool is_like(const SeenWait& other) const;
};

/// The place of that in job memory, written by one member alone. Whoever reads it reads `state` before and after: a
/// writer that died in the middle leaves a wait that is not there.
struct alignas(128) WaitRecord {
  static constexpr std::size_t kRankWords = 16;
  static constexpr std::size_t kTextWords = 40;
  enum : std::uint64_t { kNone = 0, kBeingWritten = 1, kWaits = 2, kStates = 4 };

  std::atomic<std::uint64_t> state;  ///< One of these, plus kStates times the number of changes.
  std::atomic<std::uint64_t> looks;  ///< Grows whenever the member has looked and goes on waiting.
  std::atomic<std::uint64_t> moves;  ///< Grows with what the member does while it waits.
  std::atomic<std::uint64_t> since;
  std::atomic<std::uint64_t> flags;
  std::array<std::atomic<std::uint64_t>, kRankWords> late;
  std::array<std::atomic<std::uint64_t>, kTextWords> text;
};

/// By the record's member. `change` is not read, but counted.
void write_wait(WaitRecord& record, const SeenWait& wait);
void withdraw_wait(WaitRecord& record);

/// Nothing where the member does not wait for long.
std::optional<SeenWait> read_wait(const WaitRecord& record);

}  // namespace retinue
