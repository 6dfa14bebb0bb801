#include "ipc/records/flight_recorder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>

#include "base/char_field.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "os/files/environment.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kCallsByDefault = 10'000;

/// How many segments hold as many calls as RETINUE_FLIGHT_RECORDER says, rounded up to a power of two; 0: none.
std::size_t wanted_segments() {
  std::size_t calls = kCallsByDefault;
  if (const auto text = find_variable("RETINUE_FLIGHT_RECORDER")) {
    char* end = nullptr;
    calls = std::strtoul(text->c_str(), &end, 10);
    if (*end != '\0' || text->starts_with('-') || calls > kMostSegments * kEntriesOfSegment)
      throw UsageError(
          fmt::format("RETINUE_FLIGHT_RECORDER is \"{}\": set it to the number of calls that each rank keeps, at most "
                      "{}, or to 0 for none",
                      *text, kMostSegments * kEntriesOfSegment));
  }
  return calls == 0 ? 0 : std::bit_ceil((calls + kEntriesOfSegment - 1) / kEntriesOfSegment);
}

/// The recorders of this process: one for each memory in which it has a slot.
struct OwnRecorders {
  struct Entry {
    std::weak_ptr<JobMemory> memory;
    int pid;
    std::shared_ptr<FlightRecorder> recorder;
  };
  std::mutex mutex;
  std::vector<Entry> entries;
};
OwnRecorders& own_recorders() {
  static auto* const own = new OwnRecorders;
  return *own;
}
[[maybe_unused]] const OwnRecorders& recorders_at_start = own_recorders();  // See made_at_start in os/sync/futex.cpp.

}  // namespace

void RecordedCallEnd::set_peer(int peer) {
  if (entry_ == nullptr || entry_->record.load(std::memory_order_relaxed) != record_) return;
  const std::uint64_t head = entry_->head.load(std::memory_order_relaxed) << 16 >> 16;
  entry_->head.store(head | std::uint64_t{static_cast<std::uint16_t>(peer)} << 48, std::memory_order_relaxed);
}

std::shared_ptr<FlightRecorder> FlightRecorder::of(const std::shared_ptr<JobMemory>& memory, const CallWords& words) {
  const std::size_t segments = wanted_segments();
  if (segments == 0 || memory->own_slot() == JobMemory::kNoSlot) return nullptr;
  OwnRecorders& own = own_recorders();
  const std::lock_guard lock(own.mutex);
  // A fork has its parent's list, but not its slot.
  std::erase_if(own.entries, [](const auto& entry) { return entry.memory.expired() || entry.pid != getpid(); });
  for (const auto& entry : own.entries)
    if (entry.memory.lock() == memory) return entry.recorder;
  std::shared_ptr<FlightRecorder> recorder(new FlightRecorder(memory, segments, words));
  own.entries.push_back({memory, getpid(), recorder});
  return recorder;
}

std::vector<std::shared_ptr<JobMemory>> FlightRecorder::memories_of_this_process() {
  OwnRecorders& own = own_recorders();
  const std::lock_guard lock(own.mutex);
  std::vector<std::shared_ptr<JobMemory>> memories;
  for (const auto& entry : own.entries)
    if (auto memory = entry.memory.lock(); memory && entry.pid == getpid()) memories.push_back(std::move(memory));
  return memories;
}

FlightRecorder::FlightRecorder(const std::shared_ptr<JobMemory>& memory, std::size_t segments, const CallWords& words)
    : memory_(memory), segment_mask_(segments - 1), segments_(segments) {
  const std::uint64_t offset = memory->allocate(sizeof(RecorderHead), BlockUse::kRuntime).offset;
  head_ = memory->at<RecorderHead>(offset);
  std::memset(static_cast<void*>(head_), 0, sizeof *head_);
  head_->pid = getpid();
  head_->begin = TickMark::now();
  head_->segment_mask.store(static_cast<std::uint32_t>(segments - 1), std::memory_order_relaxed);
  head_->words = words;
  head_->site_count.store(1, std::memory_order_relaxed);
  add_segment(0);  // So that the first call is as quick as others.
  head_->magic.store(kRecorderMagic, std::memory_order_release);
  process_slot(*memory, memory->own_slot()).recorder.store(offset, std::memory_order_release);
}

CallEntry* FlightRecorder::add_segment(std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  const std::size_t segment = call / kEntriesOfSegment & segment_mask_.load(std::memory_order_relaxed);
  CallEntry* entries = segments_[segment].load(std::memory_order_relaxed);
  if (entries == nullptr) {
    const std::shared_ptr<JobMemory> memory = memory_.lock();
    try {
      const std::uint64_t offset = memory->allocate(kEntriesOfSegment * sizeof(CallEntry), BlockUse::kRuntime).offset;
      entries = memory->at<CallEntry>(offset);
      std::memset(static_cast<void*>(entries), 0, kEntriesOfSegment * sizeof(CallEntry));
      head_->segments[segment].store(offset, std::memory_order_release);
    } catch (const Error&) {
      // Full memory is no reason to end a job: those that are there are used again, and hold fewer calls.
      if (segment == 0) return nullptr;
      segment_mask_.store(std::bit_floor(segment) - 1, std::memory_order_release);
      head_->segment_mask.store(static_cast<std::uint32_t>(std::bit_floor(segment) - 1), std::memory_order_release);
      return segments_[call / kEntriesOfSegment & segment_mask_].load(std::memory_order_relaxed) +
             call % kEntriesOfSegment;
    }
    segments_[segment].store(entries, std::memory_order_release);
  }
  return entries + call % kEntriesOfSegment;
}

std::uint16_t FlightRecorder::add_group(std::string_view name, int rank, int size) {
  const std::lock_guard lock(mutex_);
  // One that was never used, else the one that was left first.
  std::size_t place = kRecordedGroups - 1;
  std::uint32_t longest_left = 0;
  for (std::size_t i = 0; i < kRecordedGroups; ++i) {
    const RecordedGroupName& group = head_->groups[i];
    if (group.uses.load(std::memory_order_relaxed) == 0) {
      place = i;
      break;
    }
    const std::uint32_t left = group.is_left.load(std::memory_order_relaxed);
    if (left == 0 || (longest_left != 0 && left >= longest_left)) continue;
    longest_left = left;
    place = i;
  }
  RecordedGroupName& group = head_->groups[place];
  group.uses.fetch_add(1, std::memory_order_acq_rel);
  char text[sizeof group.name];
  fill_path(text, name);
  group.rank.store(rank, std::memory_order_release);
  group.size.store(size, std::memory_order_release);
  for (std::size_t i = 0; i < std::size(group.name); ++i) {
    std::uint64_t word = 0;
    std::memcpy(&word, text + i * sizeof word, sizeof word);
    group.name[i].store(word, std::memory_order_release);
  }
  group.is_left.store(0, std::memory_order_relaxed);
  group.uses.fetch_add(1, std::memory_order_release);
  return static_cast<std::uint16_t>(place);
}

void FlightRecorder::leave_group(std::uint16_t group) {
  const std::lock_guard lock(mutex_);
  head_->groups[group].is_left.store(++groups_left_, std::memory_order_relaxed);
}

std::uint32_t FlightRecorder::find_site(const char* file, unsigned line) {
  RecordedSite wanted{};
  wanted.line = line;
  fill_path(wanted.path, file);
  const std::lock_guard lock(mutex_);
  const std::uint32_t count = head_->site_count.load(std::memory_order_relaxed);
  for (std::uint32_t i = 1; i < count; ++i)
    if (std::memcmp(&head_->sites[i], &wanted, sizeof wanted) == 0) return i;
  if (count == kRecordedSites) return 0;
  head_->sites[count] = wanted;
  head_->site_count.store(count + 1, std::memory_order_release);
  return count;
}

}  // namespace retinue
