#include "process/observe/job_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/site_text.h"
#include "ipc/memory/context_table.h"
#include "ipc/memory/job_clock.h"
#include "ipc/records/recorded_calls.h"
#include "os/process/process_look.h"
#include "os/process/process_stat.h"
#include "os/sync/clock.h"
#include "process/failure/failure_text.h"

namespace retinue {
namespace {

/// Read through the descriptor: a look through the mapping would commit a page for every record that was never used.
bool has_ranks(const JobMemory& memory, std::uint32_t index) {
  std::uint32_t state = ContextRecord::kFree;
  const auto offset = memory.offset_of(&memory.header().contexts[index].state);
  if (pread(memory.memfd(), &state, sizeof state, static_cast<off_t>(offset)) != sizeof state) return false;
  return state != ContextRecord::kFree;
}

/// Programs that know nothing of Retinue never say that they run: they do as soon as they are another program.
bool is_starting(const JobMemory& memory, const RankView& view, ProcessState state, const ProcessStat& stat) {
  if (state == ProcessState::kReserved) return true;
  if (state != ProcessState::kStarted) return false;
  if (!stat.has_executed()) return true;
  const auto executable = executable_of(view.pid);
  return executable && *executable == memory.header().program;
}

std::string state_text(const JobMemory& memory, const RankView& view, ProcessState state, const ProcessStat& stat) {
  if (stat.state == 'Z' || stat.state == 'X') return "finished";
  if (stat.state == 'T') return "stopped";
  if (stat.state == 't') return "traced";
  if (state == ProcessState::kFinished) return "finished";
  return is_starting(memory, view, state, stat) ? "starting" : "running";
}

RankView view_of(const JobMemory& memory, const ContextRecord& record, const ProcessSlot& slot) {
  RankView view;
  view.context = record.id;
  view.rank = slot.rank;
  view.local_rank = slot.local_rank;
  view.steps = slot.steps.load(std::memory_order_relaxed);
  const ProcessState state = slot.state.load(std::memory_order_acquire);
  view.pid = slot.pid.load(std::memory_order_relaxed);
  if (state == ProcessState::kDead) {
    view.state = "ended";
    view.end = printable(ending_text(outcome_of(slot)));
    view.cpu = std::chrono::nanoseconds(slot.use.user_cpu_ns + slot.use.system_cpu_ns);
    return view;
  }
  const auto stat = view.pid > 0 ? process_stat(view.pid) : std::nullopt;
  if (!stat) {
    // Not forked yet, or gone a moment ago: the guardian is about to say more.
    view.state = view.pid > 0 ? "finished" : "starting";
    return view;
  }
  view.process_state = stat->state;
  view.state = state_text(memory, view, state, *stat);
  view.cpu = stat->cpu();
  view.resident_bytes = stat->resident_bytes;
  view.command = command_of(view.pid);
  return view;
}

}  // namespace

std::optional<CurrentCall> current_call_of(const JobMemory& memory, std::uint32_t slot) {
  constexpr std::size_t kLookedAt = 64;
  std::vector<RecordedCall> calls = read_calls_since(memory, slot, 1, kLookedAt);
  std::erase_if(calls, [](const RecordedCall& call) { return call.ended_ns != 0; });
  if (calls.empty()) return std::nullopt;
  const auto recorder = read_recorder(memory, slot);
  if (!recorder) return std::nullopt;
  const auto is_collective = [&](const RecordedCall& call) { return !recorder->is_message(call); };
  const auto newest = std::find_if(calls.rbegin(), calls.rend(), is_collective);
  const RecordedCall& call = newest != calls.rend() ? *newest : calls.front();
  const RecordedPlace& place = recorder->site_of(call);
  const std::string file = place.file.substr(place.file.rfind('/') + 1);
  return CurrentCall{.kind = printable(recorder->kind_of(call)),
                     .group = printable(recorder->group_of(call).name),
                     .sequence = call.sequence,
                     .site = file.empty() ? "" : printable(site_text(file, place.line)),
                     .waiting = std::chrono::nanoseconds(recorder->read_ns - call.started_ns)};
}

std::vector<RankView> view_ranks(const JobMemory& memory) {
  std::vector<RankView> ranks;
  for (std::uint32_t index = 0; index < kMaxContexts; ++index) {
    if (!has_ranks(memory, index)) continue;
    const ContextRecord& record = context_record(memory, index);
    for (std::uint32_t rank = 0; rank < std::min(record.nprocs, kMaxProcesses); ++rank) {
      const std::uint32_t slot = record.slots[rank];
      if (slot >= kMaxProcesses || process_slot(memory, slot).context != index)
        continue;  // It is just being given back.
      RankView view = view_of(memory, record, process_slot(memory, slot));
      view.slot = slot;
      if (view.is_alive()) view.call = current_call_of(memory, slot);
      ranks.push_back(std::move(view));
    }
  }
  std::ranges::stable_sort(ranks, {}, &RankView::context);
  return ranks;
}

bool is_debugged(const JobMemory& memory) {
  return job_clock_stands(memory.header());
}

std::chrono::nanoseconds age_of(const JobMemory& memory) {
  const std::uint64_t began = process_slot(memory, kProgramSlot).started_ns.load(std::memory_order_relaxed);
  const std::uint64_t now = monotonic_ns();
  return std::chrono::nanoseconds(now > began ? now - began : 0);
}

std::chrono::milliseconds longest_stop_of(const JobMemory& memory) {
  return std::chrono::milliseconds(memory.header().longest_stop_ms.load(std::memory_order_relaxed));
}

}  // namespace retinue
