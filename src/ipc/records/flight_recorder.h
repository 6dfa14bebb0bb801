#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "os/machine/prefetch.h"
#include "os/sync/tick_clock.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// One call of a process, in its recorder. Written by that process alone: `record` last, with release.
struct alignas(64) CallEntry {
  std::atomic<std::uint64_t> record;   ///< The call's number in the process, from 1; 0 while the rest is written.
  std::atomic<std::uint64_t> started;  ///< Ticks of TickClock.
  std::atomic<std::uint64_t> ended;    ///< The same; 0: under way. With kFailed: by an error.
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> head;  ///< kind, dtype, op, nothing, group (16 bits), peer (16 bits) from the lowest up.
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> bytes;
  std::atomic<std::uint64_t> where;  ///< Tag, 32 bits, below the call site's index.

  static constexpr std::uint64_t kFailed = std::uint64_t{1} << 63;
};
static_assert(sizeof(CallEntry) == 64);

/// What a call's numbers mean, so that whoever reads a recording need not know those who made the calls.
struct CallWords {
  static constexpr std::size_t kMost = 32;  ///< Of each.

  char kinds[kMost][24];
  char dtypes[kMost][16];
  char ops[kMost][24];
};

struct RecordedGroupName {
  std::atomic<std::uint32_t> uses;     ///< Odd while it is written.
  std::atomic<std::uint32_t> is_left;  ///< 0: this process is in it; the lower, the longer ago it left.
  std::atomic<std::int32_t> rank;
  std::atomic<std::int32_t> size;
  std::atomic<std::uint64_t> name[14];  ///< As fill_path() shortens it.
};

/// A call site: its line, then its path as fill_path() shortens it.
struct RecordedSite {
  std::uint32_t line;
  char path[60];
};

constexpr std::uint64_t kRecorderMagic = 0x3152444345544552ull;
constexpr std::size_t kEntriesOfSegment = 1024;
constexpr std::size_t kMostSegments = 1024;
constexpr std::size_t kRecordedGroups = 128;
constexpr std::size_t kRecordedSites = 256;  ///< The first stands for all for which there is no space.

/// The first block of a process's recorder in job memory; segments of entries are blocks of their own.
struct RecorderHead {
  std::atomic<std::uint64_t> magic;  ///< Written last.
  std::int32_t pid;
  TickMark begin;
  std::atomic<std::uint64_t> next;          ///< Calls recorded so far.
  std::atomic<std::uint32_t> segment_mask;  ///< Call n, from 0, is in the segment n / kEntriesOfSegment & this.
  CallWords words;
  std::atomic<std::uint32_t> site_count;
  RecordedSite sites[kRecordedSites];
  RecordedGroupName groups[kRecordedGroups];
  std::atomic<std::uint64_t> segments[kMostSegments];  ///< Offsets in job memory; 0: not there.
};

/// A call that was recorded and may not have ended.
class RecordedCallEnd {
 public:
  RecordedCallEnd() = default;
  RecordedCallEnd(CallEntry* entry, std::uint64_t record) : entry_(entry), record_(record) {}

  /// The first end counts.
  void end() { end_as(TickClock::now()); }
  void fail() { end_as(TickClock::now() | CallEntry::kFailed); }
  /// Says who the other one was, after it was anybody.
  void set_peer(int peer);

 private:
  void end_as(std::uint64_t ended) {
    // Overwritten by newer calls, when it took so long.
    if (entry_ != nullptr && entry_->record.load(std::memory_order_relaxed) == record_)
      entry_->ended.store(ended, std::memory_order_release);
    entry_ = nullptr;
  }

  CallEntry* entry_ = nullptr;
  std::uint64_t record_ = 0;
};

/// What is said of a call when it begins.
struct CallFacts {
  std::uint64_t started = 0;  ///< Ticks.
  std::uint64_t ended = 0;
  std::uint64_t sequence = 0;
  std::uint8_t kind = 0;
  std::uint8_t dtype = 0;
  std::uint8_t op = 0;
  std::uint16_t group = 0;
  int peer = 0;  ///< Or the root; -1: anybody.
  int tag = 0;
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;
  std::uint32_t site = 0;
};

/// Keeps the last calls of this process in job memory, where they outlive it.
///
/// Threads: any. Cost of a call: 15 to 20 ns, most of them two looks at the clock; a block of 64 KiB for each of the
/// first thousands of calls.
class FlightRecorder {
 public:
  /// This process's recorder in `memory`; null where RETINUE_FLIGHT_RECORDER is 0.
  /// Errors: SharedMemoryExhausted; UsageError for a bad RETINUE_FLIGHT_RECORDER.
  static std::shared_ptr<FlightRecorder> of(const std::shared_ptr<JobMemory>& memory, const CallWords& words);
  /// The memories in which this process records calls.
  static std::vector<std::shared_ptr<JobMemory>> memories_of_this_process();

  RecordedCallEnd begin(const CallFacts& facts) {
    const std::uint64_t call = head_->next.fetch_add(1, std::memory_order_relaxed);
    CallEntry* const entry = find_entry(call);
    if (entry == nullptr) return {};
    entry->record.store(0, std::memory_order_relaxed);
    // Each with release, so that who reads one of them sees that zero, or what comes after it.
    entry->started.store(facts.started, std::memory_order_release);
    entry->ended.store(facts.ended, std::memory_order_release);
    entry->sequence.store(facts.sequence, std::memory_order_release);
    entry->head.store(std::uint64_t{facts.kind} | std::uint64_t{facts.dtype} << 8 | std::uint64_t{facts.op} << 16 |
                          std::uint64_t{facts.group} << 32 |
                          std::uint64_t{static_cast<std::uint16_t>(facts.peer)} << 48,
                      std::memory_order_release);
    entry->count.store(facts.count, std::memory_order_release);
    entry->bytes.store(facts.bytes, std::memory_order_release);
    entry->where.store(std::uint64_t{facts.site} << 32 | static_cast<std::uint32_t>(facts.tag),
                       std::memory_order_release);
    entry->record.store(call + 1, std::memory_order_release);
    prefetch_to_write(entry + 1);
    return {entry, call + 1};
  }

  /// A number for a group that this process is in. When there are too many, one that was left loses its name.
  std::uint16_t add_group(std::string_view name, int rank, int size);
  void leave_group(std::uint16_t group);
  /// A number for a call site.
  std::uint32_t find_site(const char* file, unsigned line);

 private:
  FlightRecorder(const std::shared_ptr<JobMemory>& memory, std::size_t segments, const CallWords& words);

  CallEntry* find_entry(std::uint64_t call) {
    const std::size_t segment = call / kEntriesOfSegment & segment_mask_.load(std::memory_order_acquire);
    CallEntry* const entries = segments_[segment].load(std::memory_order_acquire);
    return entries != nullptr ? entries + call % kEntriesOfSegment : add_segment(call);
  }
  CallEntry* add_segment(std::uint64_t call);

  std::weak_ptr<JobMemory> memory_;  ///< Which outlives its users, who have it themselves.
  RecorderHead* head_;
  std::atomic<std::size_t> segment_mask_;
  std::vector<std::atomic<CallEntry*>> segments_;
  std::mutex mutex_;
  std::uint32_t groups_left_ = 0;
};

}  // namespace retinue
