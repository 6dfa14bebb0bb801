#include "process/trace/merged_calls.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <tuple>
#include <utility>

#include "ipc/memory/context_table.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
/// Groups whose size is more were written by nobody who meant it.
constexpr int kLargestGroup = kMaxProcesses;

/// What the process did after that moment is not known yet.
void cut(Recording& recording, std::uint64_t moment) {
  const auto later = [moment](const RecordedCall& call) { return call.started_ns > moment; };
  std::erase_if(recording.calls, later);
  for (RecordedCall& call : recording.calls) {
    if (call.ended_ns <= moment) continue;
    call.ended_ns = 0;
    call.failed = false;
  }
  recording.read_ns = std::max(moment, recording.begun_ns);
}

RecordedProcess process_in(const JobMemory& memory, std::uint32_t index, std::uint64_t moment) {
  const ProcessSlot& slot = process_slot(memory, index);
  RecordedProcess process;
  if (const std::uint32_t context = slot.context; context < kMaxContexts) {
    process.context = context_record(memory, context).id;
    process.rank = std::max(-1, slot.rank);
  }
  auto recording = read_recording(memory, index);
  if (recording) {
    process.recording = std::move(*recording);
    cut(process.recording, moment);
  } else {
    process.recording.slot = index;
    process.recording.pid = slot.pid.load(std::memory_order_relaxed);
    process.recording.read_ns = moment;
  }
  return process;
}

/// Slots from here on no process ever had: a look at them would commit memory.
std::uint32_t used_slots(const JobMemory& memory) {
  return std::clamp(memory.header().process_end.load(std::memory_order_acquire), kGuardianSlot + 1, kMaxProcesses);
}

}  // namespace

std::vector<RecordedProcess> read_recordings(const JobMemory& memory, std::span<const std::uint32_t> slots) {
  const std::uint64_t moment = monotonic_ns();
  std::vector<RecordedProcess> processes;
  for (const std::uint32_t slot : slots)
    if (slot < kMaxProcesses) processes.push_back(process_in(memory, slot, moment));
  return processes;
}

std::vector<RecordedProcess> read_recordings(const JobMemory& memory) {
  const std::uint64_t moment = monotonic_ns();
  std::vector<RecordedProcess> processes;
  for (std::uint32_t slot = 0; slot < used_slots(memory); ++slot)
    if (read_recorder(memory, slot)) processes.push_back(process_in(memory, slot, moment));
  std::ranges::stable_sort(processes, {}, [](const RecordedProcess& process) {
    return std::tuple(!process.is_rank(), process.context, process.rank);
  });
  return processes;
}

MergedCalls::MergedCalls(std::vector<RecordedProcess> processes) : processes_(std::move(processes)) {
  add_groups();
  add_calls();
  add_missing();
}

void MergedCalls::add_groups() {
  // A communicator that was made after another one of the same name is a group of its own, whose calls count from 1
  // again: the first of each member are one group, and so on.
  std::map<std::pair<std::string, std::size_t>, std::uint32_t> known;
  for (std::uint32_t process = 0; process < processes_.size(); ++process) {
    const Recording& recording = processes_[process].recording;
    std::vector<bool> is_used(recording.groups.size());
    for (const RecordedCall& call : recording.calls) is_used[call.group] = true;
    std::map<std::string, std::size_t> seen;
    std::vector<std::uint32_t>& numbers = group_of_.emplace_back(recording.groups.size(), kNone);
    for (std::size_t i = 0; i < recording.groups.size(); ++i) {
      const RecordedGroup& group = recording.groups[i];
      if (group.name.empty() && !is_used[i]) continue;
      const auto [found, is_new] =
          known.try_emplace({group.name, seen[group.name]++}, static_cast<std::uint32_t>(groups_.size()));
      if (is_new)
        groups_.push_back(
            {group.name, std::vector<std::uint32_t>(static_cast<std::size_t>(std::clamp(group.size, 0, kLargestGroup)),
                                                    MergedGroup::kUnknown)});
      numbers[i] = found->second;
      std::vector<std::uint32_t>& members = groups_[found->second].members;
      if (group.rank >= 0 && static_cast<std::size_t>(group.rank) < members.size())
        members[static_cast<std::size_t>(group.rank)] = process;
    }
  }
}

void MergedCalls::add_calls() {
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> known;
  for (std::uint32_t process = 0; process < processes_.size(); ++process) {
    const Recording& recording = processes_[process].recording;
    for (std::uint32_t i = 0; i < recording.calls.size(); ++i) {
      const RecordedCall& call = recording.calls[i];
      if (recording.is_message(call)) continue;
      const std::uint32_t group = group_of_[process][call.group];
      const auto [found, is_new] = known.try_emplace({group, call.sequence}, static_cast<std::uint32_t>(calls_.size()));
      if (is_new)
        calls_.push_back({.group = group, .sequence = call.sequence, .calls = {}, .is_whole = false, .missing = {}});
      // Twice, where a group's name became another's: the first one counts.
      std::vector<CallOf>& calls = calls_[found->second].calls;
      if (calls.empty() || calls.back().process != process) calls.push_back({process, i});
    }
  }
  const auto began = [this](const CallOf& call) { return call_of(call).started_ns; };
  for (MergedCall& merged : calls_) {
    std::ranges::stable_sort(merged.calls, {}, began);
    merged.is_whole = merged.calls.size() == groups_[merged.group].members.size();
  }
  std::ranges::stable_sort(calls_, {}, [&](const MergedCall& merged) { return began(merged.calls.front()); });
  for (const RecordedProcess& process : processes_) merged_of_.emplace_back(process.recording.calls.size(), kNone);
  for (std::uint32_t i = 0; i < calls_.size(); ++i)
    for (const CallOf& call : calls_[i].calls) merged_of_[call.process][call.call] = i;
}

std::vector<std::vector<std::uint32_t>> MergedCalls::all_members() const {
  std::map<std::uint32_t, std::map<int, std::uint32_t>> ranks_of;  // By context.
  for (std::uint32_t process = 0; process < processes_.size(); ++process)
    if (processes_[process].is_rank()) ranks_of[processes_[process].context][processes_[process].rank] = process;
  std::vector<std::vector<std::uint32_t>> all;
  for (const MergedGroup& group : groups_) {
    std::vector<std::uint32_t>& members = all.emplace_back(group.members);
    const auto known = std::ranges::find_if(members, [](auto member) { return member != MergedGroup::kUnknown; });
    if (known == members.end()) continue;
    const std::map<int, std::uint32_t>& ranks = ranks_of[processes_[*known].context];
    const auto is_alike = [&](const auto& rank) {
      const auto at = static_cast<std::size_t>(rank.first);
      return at < members.size() && (members[at] == MergedGroup::kUnknown || members[at] == rank.second);
    };
    if (ranks.size() != members.size() || !std::ranges::all_of(ranks, is_alike)) continue;
    std::ranges::copy(ranks | std::views::values, members.begin());
  }
  return all;
}

void MergedCalls::add_missing() {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> newest;  // By group and process.
  for (const MergedCall& merged : calls_)
    for (const CallOf& call : merged.calls) {
      std::uint64_t& sequence = newest[{merged.group, call.process}];
      sequence = std::max(sequence, merged.sequence);
    }
  const auto never_began = [&](const MergedCall& merged, std::uint32_t process) {
    if (process == MergedGroup::kUnknown) return false;
    if (const auto last = newest.find({merged.group, process}); last != newest.end())
      return last->second < merged.sequence;
    // Its calls of the group may be among those that it keeps no more.
    const Recording& recording = processes_[process].recording;
    return recording.calls.empty() ? recording.total == 0 : recording.calls.front().record == 1;
  };
  const std::vector<std::vector<std::uint32_t>> members = all_members();
  for (MergedCall& merged : calls_) {
    if (merged.is_whole) continue;
    std::vector<std::uint32_t> there;
    for (const CallOf& call : merged.calls) there.push_back(call.process);
    std::ranges::sort(there);
    std::vector<std::uint32_t> missing;
    std::ranges::copy_if(members[merged.group], std::back_inserter(missing),
                         [&](std::uint32_t process) { return !std::ranges::binary_search(there, process); });
    if (std::ranges::all_of(missing, [&](std::uint32_t process) { return never_began(merged, process); }))
      merged.missing = std::move(missing);
  }
}

const MergedCall* MergedCalls::find(const CallOf& call) const {
  const std::uint32_t merged = merged_of_[call.process][call.call];
  return merged == kNone ? nullptr : &calls_[merged];
}

std::optional<CallTimes> MergedCalls::times_of(const CallOf& call) const {
  const MergedCall* const merged = find(call);
  if (merged == nullptr || (!merged->is_whole && merged->missing.empty())) return std::nullopt;
  const RecordedCall& own = call_of(call);
  const std::uint64_t end = end_of(own, process_of(call).recording);
  if (!merged->is_whole)
    return CallTimes{.waiting_ns = end - own.started_ns, .transfer_ns = 0, .late = merged->missing.front()};
  const CallOf& latest = merged->calls.back();
  const std::uint64_t last = std::min(call_of(latest).started_ns, end);
  const std::uint64_t waiting = last - std::min(own.started_ns, last);
  return CallTimes{.waiting_ns = waiting, .transfer_ns = end - own.started_ns - waiting, .late = latest.process};
}

}  // namespace retinue
