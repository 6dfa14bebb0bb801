#include "collective/board/wait_record.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/char_field.h"
#include "ipc/memory/process_table.h"

namespace retinue {
namespace {

static_assert(WaitRecord::kRankWords * 64 >= kMaxProcesses);

constexpr std::uint64_t kNeedsOnlyOne = 1;
constexpr std::uint64_t kCertain = 2;
constexpr std::uint64_t kOtherThreads = 4;
constexpr std::uint64_t kForMessage = 8;

constexpr std::uint64_t flag(std::uint64_t which, bool is_set) {
  return is_set ? which : 0;
}

std::uint64_t next_state(const WaitRecord& record, std::uint64_t what) {
  const std::uint64_t changes = record.state.load(std::memory_order_relaxed) / WaitRecord::kStates + 1;
  return changes * WaitRecord::kStates + what;
}

}  // namespace

bool SeenWait::is_like(const SeenWait& other) const {
  return since == other.since && needs_only_one == other.needs_only_one && is_certain == other.is_certain &&
         is_for_message == other.is_for_message && has_other_threads == other.has_other_threads && late == other.late &&
         text == other.text;
}

void write_wait(WaitRecord& record, const SeenWait& wait) {
  // Sequentially consistent: nothing of what follows may be seen before it.
  record.state.exchange(next_state(record, WaitRecord::kBeingWritten), std::memory_order_seq_cst);
  record.since.store(static_cast<std::uint64_t>(wait.since.count()), std::memory_order_release);
  record.flags.store(flag(kNeedsOnlyOne, wait.needs_only_one) | flag(kCertain, wait.is_certain) |
                         flag(kOtherThreads, wait.has_other_threads) | flag(kForMessage, wait.is_for_message),
                     std::memory_order_release);
  std::uint64_t ranks[WaitRecord::kRankWords] = {};
  for (const int rank : wait.late) ranks[rank / 64] |= std::uint64_t{1} << rank % 64;
  for (std::size_t i = 0; i < std::size(ranks); ++i) record.late[i].store(ranks[i], std::memory_order_release);
  std::uint64_t text[WaitRecord::kTextWords] = {};
  std::memcpy(text, wait.text.data(), std::min(wait.text.size(), sizeof text));
  for (std::size_t i = 0; i < std::size(text); ++i) record.text[i].store(text[i], std::memory_order_release);
  record.state.store(next_state(record, WaitRecord::kWaits), std::memory_order_release);
}

void withdraw_wait(WaitRecord& record) {
  record.state.store(next_state(record, WaitRecord::kNone), std::memory_order_release);
}

std::optional<SeenWait> read_wait(const WaitRecord& record) {
  const std::uint64_t state = record.state.load(std::memory_order_acquire);
  if (state % WaitRecord::kStates != WaitRecord::kWaits) return std::nullopt;
  SeenWait wait;
  wait.change = state;
  // Acquire, so that `state` is read again after all of these.
  wait.since = std::chrono::nanoseconds(record.since.load(std::memory_order_acquire));
  const std::uint64_t flags = record.flags.load(std::memory_order_acquire);
  wait.needs_only_one = (flags & kNeedsOnlyOne) != 0;
  wait.is_certain = (flags & kCertain) != 0;
  wait.is_for_message = (flags & kForMessage) != 0;
  wait.has_other_threads = (flags & kOtherThreads) != 0;
  for (std::size_t i = 0; i < record.late.size(); ++i) {
    const std::uint64_t word = record.late[i].load(std::memory_order_acquire);
    for (int bit = 0; bit < 64; ++bit)
      if ((word >> bit & 1) != 0) wait.late.push_back(static_cast<int>(i) * 64 + bit);
  }
  wait.text = text_in(record.text);
  if (record.state.load(std::memory_order_relaxed) != state) return std::nullopt;
  return wait;
}

}  // namespace retinue
