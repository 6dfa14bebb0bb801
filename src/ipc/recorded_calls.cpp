#include "ipc/recorded_calls.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "ipc/flight_recorder.h"
#include "ipc/job_layout.h"
#include "ipc/process_table.h"

namespace retinue {
namespace {

/// Where others may write, a text ends where its place does.
template <std::size_t kBytes>
std::string text_of(const char (&field)[kBytes]) {
  return {field, strnlen(field, kBytes)};
}

template <std::size_t kWords, std::size_t kBytes>
std::vector<std::string> texts_of(const char (&words)[kWords][kBytes]) {
  std::vector<std::string> texts;
  for (const auto& word : words) texts.push_back(text_of(word));
  return texts;
}

template <typename T>
const T* part_at(const JobMemory& memory, std::uint64_t offset, std::size_t count = 1) {
  if (offset == 0 || offset % alignof(T) != 0 || offset > memory.capacity_bytes()) return nullptr;
  return memory.capacity_bytes() - offset >= count * sizeof(T) ? memory.at<T>(offset) : nullptr;
}

const RecorderHead* find_head(const JobMemory& memory, std::uint32_t slot) {
  const std::uint64_t offset = process_slot(memory, slot).recorder.load(std::memory_order_acquire);
  const auto* head = part_at<RecorderHead>(memory, offset);
  return head != nullptr && head->magic.load(std::memory_order_acquire) == kRecorderMagic ? head : nullptr;
}

RecordedGroup read_group(const RecordedGroupName& from) {
  // A group's place is written anew only after more groups than there are places: one more look is enough.
  for (int look = 0; look < 2; ++look) {
    const std::uint32_t uses = from.uses.load(std::memory_order_acquire);
    RecordedGroup group{.name = text_of(from.name), .rank = from.rank, .size = from.size};
    std::atomic_thread_fence(std::memory_order_acquire);
    if (uses % 2 == 0 && from.uses.load(std::memory_order_relaxed) == uses) return group;
  }
  return {};
}

/// The entry, if it holds a whole call.
std::optional<RecordedCall> read_entry(const CallEntry& entry, const TickScale& scale) {
  const std::uint64_t record = entry.record.load(std::memory_order_acquire);
  if (record == 0) return std::nullopt;
  const std::uint64_t ended = entry.ended.load(std::memory_order_acquire);
  const std::uint64_t started = entry.started.load(std::memory_order_relaxed);
  const std::uint64_t head = entry.head.load(std::memory_order_relaxed);
  const std::uint64_t where = entry.where.load(std::memory_order_relaxed);
  RecordedCall call{.record = record,
                    .started_ns = scale.ns_of(started),
                    .ended_ns = ended == 0 ? 0 : scale.ns_of(ended & ~CallEntry::kFailed),
                    .failed = (ended & CallEntry::kFailed) != 0,
                    .sequence = entry.sequence.load(std::memory_order_relaxed),
                    .kind = static_cast<std::uint8_t>(head % CallWords::kMost),
                    .dtype = static_cast<std::uint8_t>((head >> 8) % CallWords::kMost),
                    .op = static_cast<std::uint8_t>((head >> 16) % CallWords::kMost),
                    .group = static_cast<std::uint16_t>((head >> 32 & 0xffff) % kRecordedGroups),
                    .peer = static_cast<std::int16_t>(head >> 48),
                    .tag = static_cast<std::int32_t>(where),
                    .count = entry.count.load(std::memory_order_relaxed),
                    .bytes = entry.bytes.load(std::memory_order_relaxed),
                    .site = static_cast<std::uint32_t>((where >> 32) % kRecordedSites)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (entry.record.load(std::memory_order_relaxed) != record) return std::nullopt;
  return call;
}

}  // namespace

std::optional<Recording> read_recording(const JobMemory& memory, std::uint32_t slot) {
  const RecorderHead* const head = find_head(memory, slot);
  if (head == nullptr) return std::nullopt;
  const TickMark now = TickMark::now();
  const TickScale scale(head->begin, now);
  Recording recording{.slot = slot,
                      .pid = head->pid,
                      .total = head->next.load(std::memory_order_acquire),
                      .begun_ns = head->begin.ns,
                      .read_ns = now.ns,
                      .calls = {},
                      .groups = {},
                      .sites = {},
                      .kinds = texts_of(head->words.kinds),
                      .dtypes = texts_of(head->words.dtypes),
                      .ops = texts_of(head->words.ops)};
  for (const auto& word : head->segments) {
    const auto* entries = part_at<CallEntry>(memory, word.load(std::memory_order_acquire), kEntriesOfSegment);
    for (std::size_t i = 0; entries != nullptr && i < kEntriesOfSegment; ++i)
      if (const auto call = read_entry(entries[i], scale)) recording.calls.push_back(*call);
  }
  std::sort(recording.calls.begin(), recording.calls.end(),
            [](const RecordedCall& a, const RecordedCall& b) { return a.record < b.record; });
  for (const RecordedGroupName& group : head->groups) recording.groups.push_back(read_group(group));
  const std::uint32_t sites = std::min<std::uint32_t>(head->site_count.load(std::memory_order_acquire), kRecordedSites);
  recording.sites.resize(kRecordedSites);
  for (std::uint32_t i = 1; i < sites; ++i)
    recording.sites[i] = {.file = text_of(head->sites[i].path), .line = head->sites[i].line};
  return recording;
}

std::uint64_t count_recorded_calls(const JobMemory& memory, std::uint32_t slot) {
  const RecorderHead* const head = find_head(memory, slot);
  return head == nullptr ? 0 : head->next.load(std::memory_order_relaxed);
}

}  // namespace retinue
