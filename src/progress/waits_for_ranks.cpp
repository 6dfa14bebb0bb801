#include "progress/waits_for_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 16;

std::uint32_t end_of_slots(const JobMemory& memory) {
  return std::clamp(memory.header().process_end.load(std::memory_order_acquire), kGuardianSlot + 1, kMaxProcesses);
}

}  // namespace

std::uint64_t overlap_ns(const Intervals& ordered, Intervals some) {
  std::ranges::sort(some, {}, &detail::BlockedTimes::Interval::begun_ns);
  std::uint64_t sum = 0;
  std::uint64_t done = 0;  // All before it was looked at.
  auto first = ordered.begin();
  for (const auto& [begun, ended] : some) {
    const std::uint64_t from = std::max(begun, done);
    while (first != ordered.end() && first->ended_ns <= from) ++first;
    for (auto each = first; each != ordered.end() && each->begun_ns < ended; ++each) {
      const std::uint64_t low = std::max(from, each->begun_ns);
      sum += std::max(low, std::min(ended, each->ended_ns)) - low;
    }
    done = std::max(done, ended);
  }
  return sum;
}

WaitsForRanks::WaitsForRanks(std::shared_ptr<JobMemory> memory) : memory_(std::move(memory)) {
  look();
}

/// A communicator that was made after another one of its name is a group of its own: the first of each member are one
/// group, and so on.
void WaitsForRanks::read_names(std::uint32_t slot, Process& process) {
  auto names = read_recorder(*memory_, slot);
  if (!names) return;
  process.names = std::move(*names);
  process.keys.clear();
  std::map<std::string, int> seen;
  for (const RecordedGroup& group : process.names.groups)
    process.keys.push_back(group.name.empty() ? "" : fmt::format("{}#{}", group.name, seen[group.name]++));
  count_members();
}

void WaitsForRanks::count_members() {
  const Process& own = processes_[memory_->own_slot()];
  for (auto& [key, group] : groups_) group.known_members = 0;
  for (std::size_t i = 0; i < own.keys.size(); ++i)
    if (!own.keys[i].empty()) groups_[own.keys[i]].size = own.names.groups[i].size;
  for (const auto& [slot, process] : processes_)
    for (const std::string& key : process.keys)
      if (const auto group = groups_.find(key); group != groups_.end()) ++group->second.known_members;
}

std::vector<RecordedCall> WaitsForRanks::read_new(std::uint32_t slot) {
  const ProcessSlot& place = process_slot(*memory_, slot);
  if (place.recorder.load(std::memory_order_acquire) == 0) return {};
  Process& process = processes_[slot];
  const std::uint64_t incarnation = place.incarnation.load(std::memory_order_acquire);
  if (std::exchange(process.incarnation, incarnation) != incarnation) {  // Another process has the slot now.
    process.next_record = 1;
    process.names = {};
    process.newest.clear();
  }
  if (process.names.kinds.empty() || has_new_groups_) read_names(slot, process);
  if (process.names.kinds.empty()) return {};
  std::vector<RecordedCall> calls = read_calls_since(*memory_, slot, process.next_record, kMostAtOnce);
  if (calls.empty()) return calls;
  process.next_record = calls.back().record + 1;
  // A group's number may be another one's since. That one's calls count from 1 again.
  bool has_new_group = false;
  for (const RecordedCall& call : calls) {
    if (process.names.is_message(call)) continue;
    std::uint64_t& newest = process.newest[call.group];
    has_new_group |= newest == 0 || call.sequence <= newest;
    newest = call.sequence;
  }
  if (!has_new_group) return calls;
  read_names(slot, process);
  if (slot == memory_->own_slot()) has_new_groups_ = true;
  return calls;
}

void WaitsForRanks::note_begun(const Process& process, const RecordedCall& call) {
  if (process.names.is_message(call) || call.group >= process.keys.size()) return;
  const auto group = groups_.find(process.keys[call.group]);
  if (group == groups_.end() || call.sequence <= group->second.seen) return;
  Group::Begun& begun = group->second.calls[call.sequence];
  ++begun.members;
  begun.last_ns = std::max(begun.last_ns, call.started_ns);
}

void WaitsForRanks::add_wait(const RecordedCall& call, const Process& own, std::uint64_t now, Intervals& waits) {
  const std::uint64_t end = call.ended_ns != 0 ? call.ended_ns : now;
  if (own.names.is_message(call)) {
    if (own.names.kind_of(call) == "recv") waits.push_back({.begun_ns = call.started_ns, .ended_ns = end});
    return;
  }
  if (call.group >= own.keys.size()) return;
  Group& group = groups_[own.keys[call.group]];
  const auto found = group.calls.find(call.sequence);
  // Members on other hosts, whose calls are not seen, may have been the last.
  if (found != group.calls.end() && group.known_members >= group.size) {
    // A member that is missing had begun it a moment before the end, and is about to record it.
    const std::uint64_t last = found->second.members < group.size ? end : std::min(found->second.last_ns, end);
    if (last > call.started_ns) waits.push_back({.begun_ns = call.started_ns, .ended_ns = last});
  }
  if (call.ended_ns == 0) return;
  group.seen = std::max(group.seen, call.sequence);
  group.calls.erase(group.calls.begin(), group.calls.upper_bound(group.seen));
}

Intervals WaitsForRanks::look() {
  const std::uint32_t own_slot = memory_->own_slot();
  std::vector<RecordedCall> calls;
  for (const std::uint64_t record : open_)
    if (const auto call = read_call(*memory_, own_slot, record)) calls.push_back(*call);
  const std::vector<RecordedCall> own_calls = read_new(own_slot);
  if (own_calls.empty() && calls.empty()) return {};
  calls.insert(calls.end(), own_calls.begin(), own_calls.end());
  for (const RecordedCall& call : own_calls) note_begun(processes_[own_slot], call);
  for (std::uint32_t slot = 0; slot < end_of_slots(*memory_); ++slot) {
    if (slot == own_slot) continue;
    const std::vector<RecordedCall> new_calls = read_new(slot);
    for (const RecordedCall& call : new_calls) note_begun(processes_[slot], call);
  }
  has_new_groups_ = false;
  Intervals waits;
  open_.clear();
  const std::uint64_t now = monotonic_ns();
  for (const RecordedCall& call : calls) {
    add_wait(call, processes_[own_slot], now, waits);
    if (call.ended_ns == 0) open_.push_back(call.record);
  }
  return waits;
}

}  // namespace retinue
