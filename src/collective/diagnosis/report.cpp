#include "collective/diagnosis/report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/ranks_text.h"
#include "collective/call/call.h"
#include "collective/diagnosis/process_end.h"
#include "ipc/memory/process_slot.h"
#include "ipc/memory/process_table.h"
#include "os/process/process_look.h"

namespace retinue {
namespace {

std::string describe_alone(const SeenCall& call) {
  const CallShape& shape = call.shape;
  const Pattern pattern = pattern_of(shape.kind);
  if (pattern.result == Pattern::Result::kNothing) return std::string(name_of(shape.kind));
  std::string text = fmt::format("{}(", name_of(shape.kind));
  if (!is_reduction(shape.kind))
    text += fmt::format("{}{} bytes", shape.dtype == Dtype::kBytes ? "" : fmt::format("{}, ", name_of(shape.dtype)),
                        shape.count);
  else if (shape.op == ReduceOp::kFunction)
    text += fmt::format("elements of {} bytes, {}, {}", call.element_bytes, shape.count, call.function);
  else
    text += fmt::format("{}, {}, {}", name_of(shape.dtype), shape.count, name_of(shape.op));
  if (pattern.only_root_gives || pattern.only_root_takes) text += fmt::format(", root {}", shape.root);
  return text + ")";
}

/// What describe() says after the name, and a blank; nothing of a call that has no data.
std::string details_of(const SeenCall& call) {
  const std::string details = describe(call).substr(name_of(call.shape.kind).size());
  return details.empty() ? details : details + " ";
}

/// Ranks that made the same call at the same place.
struct SameCalls {
  std::string text;
  std::vector<int> ranks;
  std::size_t alike = 0;  ///< How many ranks made that call at whatever place; those that made none come last.
};

/// `call_of`: of a rank, what is known of its call. First the calls that the fewest made: who is wrong stands there.
template <typename CallOf>
std::vector<SameCalls> same_calls(int ranks, CallOf call_of) {
  std::map<std::string, std::size_t> alike;
  std::map<std::string, SameCalls> by_text;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::optional<SeenCall> call = call_of(rank);
    SameCalls& same = by_text[call ? described_at(*call) : "not there yet"];
    if (same.ranks.empty()) same.text = call ? describe(*call) : "";
    same.ranks.push_back(rank);
    if (call) ++alike[same.text];
  }
  std::vector<SameCalls> groups;
  for (auto& [text, same] : by_text) {
    const auto found = alike.find(same.text);
    groups.push_back({text, std::move(same.ranks), found == alike.end() ? ~std::size_t{0} : found->second});
  }
  std::ranges::sort(groups, {}, [](const SameCalls& group) {
    return std::tuple(group.alike, group.ranks.size(), group.ranks.front());
  });
  return groups;
}

/// Of more calls than who reads it can look through the ranks alone.
template <typename CallOf>
std::string calls_of_all(int ranks, CallOf call_of) {
  constexpr std::size_t kShownCalls = 8;
  const std::vector<SameCalls> groups = same_calls(ranks, call_of);
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), kShownCalls); ++i)
    text += fmt::format("{}{}: {}", i > 0 ? "; " : "", ranks_by_ranges(groups[i].ranks), groups[i].text);
  std::vector<int> others;
  for (std::size_t i = kShownCalls; i < groups.size(); ++i)
    others.insert(others.end(), groups[i].ranks.begin(), groups[i].ranks.end());
  if (!others.empty()) text += fmt::format("; {}: other calls", ranks_by_ranges(others));
  return text;
}

std::string with_calls(std::string_view group, std::string_view what, std::uint64_t number, std::string_view all) {
  return fmt::format("group \"{}\": {} (the {} of each): {}", group, what, ordinal(number), all);
}

}  // namespace

std::string with_calls(std::string_view group, std::string_view what, std::uint64_t number,
                       std::span<const SeenCall> calls) {
  return with_calls(group, what, number, calls_of_all(static_cast<int>(calls.size()), [&](int rank) {
                      return std::optional(calls[static_cast<std::size_t>(rank)]);
                    }));
}

std::string ordinal(std::uint64_t n) {
  const char* suffix = "th";
  if (n % 100 < 11 || n % 100 > 13) suffix = n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
  return fmt::format("{}{}", n, suffix);
}

std::string described_at(const SeenCall& call) {
  return fmt::format("{} at {}", describe(call), site_text(call.site));
}

std::string describe(const SeenCall& call) {
  if (call.site.outer == OuterCall::kNone) return describe_alone(call);
  return fmt::format("{} in {}", describe_alone(call), name_of(call.site.outer));
}

std::uint64_t Reporter::calls_until(std::uint64_t sequence) const {
  return sequence - std::min(sequence, board_.header().opening_calls.load(std::memory_order_relaxed));
}

std::string Reporter::own_call() const {
  if (!own_wait_.empty()) return own_wait_;
  const auto call = board_.read_line(group_.rank, sequence_);
  if (!call || call->shape.kind == CollectiveKind::kOpen || call->site.outer == OuterCall::kOpening)
    return fmt::format("rank {} waits in {}{}", group_.rank, name_of(OuterCall::kOpening),
                       call ? " at " + site_text(call->site) : "");
  return fmt::format("rank {} waits in its {} call, {}, at {}", group_.rank, ordinal(calls_until(sequence_)),
                     describe(*call), site_text(call->site));
}

bool Reporter::are_of_one_kind(int rank, const SeenCall& newest) const {
  // A name that takes no plural.
  if (newest.shape.kind == CollectiveKind::kAllReduceCoalesced || newest.shape.kind == CollectiveKind::kOpen ||
      newest.site.outer != OuterCall::kNone)
    return false;
  const std::uint64_t calls = calls_until(newest.sequence);
  if (calls >= kLines) return false;  // The older ones have been written over.
  for (std::uint64_t back = 1; back < calls; ++back) {
    const auto call = board_.read_line(rank, newest.sequence - back);
    if (!call || call->shape.kind != newest.shape.kind || call->site.outer != OuterCall::kNone) return false;
  }
  return true;
}

std::string Reporter::history_of(int rank) const {
  const SeenCall newest = board_.newest_call(rank);
  if (newest.sequence == 0) return "before it joined the group";
  if (newest.site.outer == OuterCall::kOpening)
    return fmt::format("in {} at {}", name_of(OuterCall::kOpening), site_text(newest.site));
  if (newest.sequence >= sequence_ && newest.shape.kind != CollectiveKind::kOpen)
    return fmt::format("in its {} call, {}", ordinal(calls_until(newest.sequence)), described_at(newest));
  const std::uint64_t calls = calls_until(newest.sequence);
  if (calls == 0) return own_wait_.empty() ? "before its first call" : "";
  const char* plural = calls == 1 ? "" : "s";
  const std::string_view kind = name_of(newest.shape.kind);
  // In the words of a program that makes one kind of call only: "after 3 barriers".
  if (are_of_one_kind(rank, newest))
    return fmt::format("after {} {}{}, the last {}at {}", calls, kind, plural, details_of(newest),
                       site_text(newest.site));
  return fmt::format("after {} call{}, the last {}", calls, plural, described_at(newest));
}

std::string Reporter::seen(int rank) const {
  const std::string history = history_of(rank);
  return history.empty() ? history : ", seen " + history;
}

std::int32_t Reporter::pid_of(int rank) const {
  const Member& member = board_.member(rank);
  const std::int32_t joined_pid = member.pid.load(std::memory_order_relaxed);
  if (joined_pid != 0) return joined_pid;
  return process_slot(*group_.memory, member.process_slot).pid.load(std::memory_order_relaxed);
}

std::string Reporter::fate_of(int rank) const {
  const ProcessSlot& slot = process_slot(*group_.memory, board_.member(rank).process_slot);
  const std::int32_t pid = pid_of(rank);
  const bool is_same_process = slot.pid.load(std::memory_order_relaxed) == pid;
  const bool has_left = board_.member(rank).state.load(std::memory_order_acquire) == MemberState::kLeft;
  const std::string history = history_of(rank);
  return fmt::format("rank {} (pid {}) {}{}{}", rank, pid, is_same_process ? end_of_process(slot, has_left) : "ended",
                     history.empty() ? "" : " ", history);
}

bool Reporter::stands_still(int rank) const {
  const std::int32_t pid = pid_of(rank);
  const auto state = state_of_thread(pid, pid);
  return state == 'T' || state == 't';
}

std::vector<int> Reporter::late_at_the_ends(const std::vector<int>& late) const {
  std::set<int> seen = {group_.rank};
  std::set<int> ends;
  std::deque<int> next(late.begin(), late.end());
  for (; !next.empty(); next.pop_front()) {
    const int rank = next.front();
    if (rank >= board_.size() || !seen.insert(rank).second) continue;
    const auto wait = read_wait(board_.member(rank).wait);
    if (wait && wait->needs_all() && !stands_still(rank))
      next.insert(next.end(), wait->late.begin(), wait->late.end());
    else
      ends.insert(rank);
  }
  return ends.empty() ? late : std::vector<int>(ends.begin(), ends.end());
}

std::string Reporter::lost(const std::vector<int>& ranks) const {
  std::string text = fmt::format("group \"{}\": ", group_.name);
  if (ranks.size() > kNamedRanks) text += fmt::format("{} are lost; ", ranks_by_ranges(ranks));
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamedRanks); ++i) text += fate_of(ranks[i]) + "; ";
  return text + own_call();
}

std::string Reporter::interrupted() const {
  return fmt::format("group \"{}\": {}, and was interrupted there by a signal", group_.name, own_call());
}

std::string Reporter::timed_out(const std::vector<int>& late, std::chrono::nanoseconds timeout,
                                const ActivityOf& activity_of) const {
  // Of several all are named first, since each one's words are long.
  std::string text = fmt::format("group \"{}\": {}, and its timeout of {} ms passed{}; missing: ", group_.name,
                                 own_call(), std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count(),
                                 late.size() > 1 ? " without " + ranks_by_ranges(late) : "");
  const auto add = [&](const std::vector<int>& ranks, std::string_view before) {
    const std::size_t named = std::min(ranks.size(), kNamedRanks);
    for (std::size_t i = 0; i < named; ++i) {
      const std::int32_t pid = pid_of(ranks[i]);
      text += fmt::format("{}rank {} (pid {}){}, which {}", i > 0 ? "; " : before, ranks[i], pid, seen(ranks[i]),
                          activity_of(ranks[i], pid));
    }
    if (named < ranks.size()) text += "; and " + ranks_behind(ranks, named);
  };
  add(late, "");
  std::vector<int> ends = late_at_the_ends(late);
  std::erase_if(ends, [&](int rank) { return std::ranges::find(late, rank) != late.end(); });
  add(ends, "; the chain of waits ends at ");
  return text;
}

std::string Reporter::missing(const std::vector<int>& late, const std::vector<int>& lost,
                              std::chrono::nanoseconds timeout, const ActivityOf& activity_of) const {
  std::string text = timed_out(late, timeout, activity_of);
  for (const int rank : lost) text += "; " + fate_of(rank);
  return text;
}

std::string Reporter::all_calls() const {
  return calls_of_all(board_.size(), [this](int rank) { return board_.read_line(rank, sequence_); });
}

std::string Reporter::mismatch() const {
  return with_calls(group_.name, kMetInDifferentCalls, calls_until(sequence_), all_calls());
}

std::string Reporter::different_buffers(std::string_view what) const {
  return fmt::format("group \"{}\": {} (the {} call of each): {}", group_.name, what, ordinal(calls_until(sequence_)),
                     all_calls());
}

std::string Reporter::threw(std::string_view what) const {
  const auto call = board_.read_line(group_.rank, sequence_);
  return fmt::format("group \"{}\": the reduction threw on rank {}, in its {} call, {}: {}", group_.name, group_.rank,
                     ordinal(calls_until(sequence_)), call ? described_at(*call) : "which is no longer recorded", what);
}

std::string Reporter::wrong_size(int giver, std::size_t given, std::size_t wanted) const {
  return fmt::format("group \"{}\": rank {} expects {} bytes from rank {}, which sends {} (the {} call of each): {}",
                     group_.name, group_.rank, wanted, giver, given, ordinal(calls_until(sequence_)), all_calls());
}

}  // namespace retinue
