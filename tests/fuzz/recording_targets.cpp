// What a process left of its last calls, after somebody wrote over it.
#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

#include "fuzz/harness.h"
#include "ipc/memory/job_layout.h"
#include "ipc/records/flight_recorder.h"
#include "ipc/records/progress_record.h"
#include "ipc/records/recorded_calls.h"
#include "process/observe/job_view.h"
#include "process/trace/chrome_trace.h"
#include "process/trace/flight_dump.h"
#include "process/trace/merged_calls.h"

namespace retinue::fuzz {
namespace {

constexpr std::uint32_t kSlot = 5;
constexpr std::uint64_t kCalls = 3000;

/// Some calls of one group, as a recorder writes them.
class Recorded {
 public:
  explicit Recorded(JobMemory& memory) : memory_(memory) {
    head_ = block_of<RecorderHead>(1);
    head_->pid = 4711;
    head_->begin = TickMark::now();
    std::strcpy(head_->words.kinds[2], "all_reduce");
    head_->site_count.store(2);
    head_->sites[1].line = 7;
    head_->groups[0].name[0].store(std::uint64_t{0x646c726f77});  // "world"
    head_->groups[0].uses.store(2);
    head_->groups[0].size = 2;
    head_->next.store(kCalls);
    head_->segment_mask.store(3);
    for (std::size_t segment = 0; segment < 3; ++segment) {
      auto* const entries = block_of<CallEntry>(kEntriesOfSegment);
      head_->segments[segment].store(blocks_.back().offset);
      for (std::size_t i = 0; i < kEntriesOfSegment; ++i) fill(entries[i], segment * kEntriesOfSegment + i + 1);
      entries_.push_back(entries);
    }
    head_->magic.store(kRecorderMagic);
    memory.header().processes[kSlot].recorder.store(blocks_.front().offset);
  }
  ~Recorded() {
    memory_.header().processes[kSlot].recorder.store(0);
    for (const BlockHandle& block : blocks_) memory_.release(block);
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  RecorderHead* head() { return head_; }
  CallEntry* entries(std::size_t segment) { return entries_.at(segment); }

 private:
  template <typename T>
  T* block_of(std::size_t count) {
    blocks_.push_back(memory_.allocate(count * sizeof(T)));
    T* const block = memory_.at<T>(blocks_.back().offset);
    std::memset(static_cast<void*>(block), 0, count * sizeof(T));
    return block;
  }
  static void fill(CallEntry& entry, std::uint64_t record) {
    if (record > kCalls) return;
    entry.started.store(TickClock::now());
    entry.ended.store(record % 3 == 0 ? 0 : TickClock::now());
    entry.sequence.store(record);
    entry.head.store(2);
    entry.where.store(std::uint64_t{1} << 32);
    entry.record.store(record);
  }

  JobMemory& memory_;
  std::vector<BlockHandle> blocks_;
  RecorderHead* head_;
  std::vector<CallEntry*> entries_;
};

void check(const Recording& recording) {
  std::uint64_t before = 0;
  std::size_t bytes = 0;
  for (const RecordedCall& call : recording.calls) {
    require(call.record > before && call.record <= recording.total, "a call that comes twice, or was never made");
    before = call.record;
    require(call.started_ns <= recording.read_ns, "a call of the future");
    require(call.ended_ns == 0 || (call.started_ns <= call.ended_ns && call.ended_ns <= recording.read_ns),
            "a call that ended before it began");
    bytes += recording.kinds.at(call.kind).size() + recording.dtypes.at(call.dtype).size() +
             recording.ops.at(call.op).size() + recording.groups.at(call.group).name.size() +
             recording.sites.at(call.site).file.size();
  }
  require(bytes <= recording.calls.size() * 300, "words that are longer than their places");
}

/// Two processes that say the same of themselves: what is made of them, whatever it is, comes to an end.
void make_all_of(const Recording& recording) {
  std::vector<RecordedProcess> processes(2);
  for (int rank = 0; rank < 2; ++rank) {
    RecordedProcess& process = processes[static_cast<std::size_t>(rank)];
    process.context = 1;
    process.rank = rank;
    process.recording = recording;
  }
  const MergedCalls calls(std::move(processes));
  for (const MergedCall& merged : calls.calls())
    for (const CallOf& call : merged.calls) {
      const auto times = calls.times_of(call);
      const RecordedCall& own = calls.call_of(call);
      require(!times || times->waiting_ns + times->transfer_ns == end_of(own, recording) - own.started_ns,
              "time that went nowhere");
    }
  require(!chrome_trace(calls).empty() && flight_dumps(calls, 1).size() == 2, "nothing was written");
}

}  // namespace

void recording(Bytes bytes) {
  JobMemory& memory = *Job::instance().memory();
  Input input(bytes);
  const auto which = input.number<std::uint8_t>() % 4;
  const auto from = input.number<std::uint64_t>();
  const auto limit = input.number<std::uint16_t>();
  without_leaks([&] {
    Recorded recorded(memory);
    const auto all = std::as_writable_bytes(std::span(recorded.head(), 1));
    if (which == 0) overwrite(input, all);
    if (which == 1) overwrite(input, all.subspan(offsetof(RecorderHead, groups)));
    if (which == 2) overwrite(input, std::as_writable_bytes(std::span(recorded.entries(1), kEntriesOfSegment)));
    if (which == 3) memory.header().processes[kSlot].recorder.store(from);
    if (const auto read = read_recording(memory, kSlot)) {
      check(*read);
      make_all_of(*read);
    }
    static_cast<void>(current_call_of(memory, kSlot));
    static_cast<void>(read_recorder(memory, kSlot));
    static_cast<void>(count_recorded_calls(memory, kSlot));
    std::uint64_t last = from == 0 ? 0 : from - 1;
    const auto calls = read_calls_since(memory, kSlot, from, limit);
    require(calls.size() <= limit, "more calls than were asked for");
    for (const RecordedCall& call : calls) {
      require(call.record > last, "calls out of order");
      last = call.record;
    }
    static_cast<void>(read_call(memory, kSlot, from));
  });
}

void progress(Bytes bytes) {
  JobMemory& memory = *Job::instance().memory();
  Input input(bytes);
  const auto which = input.number<std::uint8_t>() % 2;
  const auto place = input.number<std::uint64_t>();
  without_leaks([&] {
    const BlockHandle block = memory.allocate(sizeof(ProgressRecord));
    auto* const record = memory.at<ProgressRecord>(block.offset);
    std::memset(static_cast<void*>(record), 0, sizeof *record);
    record->magic.store(kProgressMagic);
    if (which == 0) overwrite(input, std::as_writable_bytes(std::span(record, 1)).subspan(sizeof record->magic));
    memory.header().processes[kSlot].progress.store(which == 1 ? place : block.offset);
    if (const auto read = read_progress(memory, kSlot)) {
      require(read->scalar_files.size() <= kScalarFiles, "more files than there is space for");
      for (const std::string& file : read->scalar_files)
        require(file.size() <= kScalarFileBytes, "a path that is longer than its place");
    }
    memory.header().processes[kSlot].progress.store(0);
    memory.release(block);
  });
}

}  // namespace retinue::fuzz
