#include "ipc/records/recorded_calls.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string_view>

#include "base/char_field.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/process_table.h"
#include "ipc/records/flight_recorder.h"

namespace retinue {
namespace {

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
    char name[sizeof from.name];
    for (std::size_t i = 0; i < std::size(from.name); ++i) {
      const std::uint64_t word = from.name[i].load(std::memory_order_acquire);
      std::memcpy(name + i * sizeof word, &word, sizeof word);
    }
    RecordedGroup group{.name = text_of(name),
                        .rank = from.rank.load(std::memory_order_acquire),
                        .size = from.size.load(std::memory_order_acquire)};
    if (uses % 2 == 0 && from.uses.load(std::memory_order_relaxed) == uses) return group;
  }
  return {};
}

/// Where a call, by its number from 1, is kept: an entry of a segment.
struct Place {
  std::size_t segment;
  std::size_t entry;

  bool operator==(const Place&) const = default;
};

/// One look at a recorder. What another process wrote may be anything.
class Reader {
 public:
  explicit Reader(const JobMemory& memory, const RecorderHead& head)
      : memory_(memory),
        head_(head),
        total_(head.next.load(std::memory_order_acquire)),
        mask_(head.segment_mask.load(std::memory_order_acquire) % kMostSegments),
        now_(TickMark::now()),
        scale_(head.begin, now_) {}

  std::uint64_t total() const { return total_; }
  std::uint64_t now_ns() const { return now_.ns; }
  /// The lowest number that may be kept.
  std::uint64_t first_kept() const {
    const std::uint64_t space = (mask_ + 1) * kEntriesOfSegment;
    return total_ > space ? total_ - space + 1 : 1;
  }
  Place place_of(std::uint64_t record) const {
    return {(record - 1) / kEntriesOfSegment & mask_, (record - 1) % kEntriesOfSegment};
  }
  /// Also of a segment that was filled before the recorder shrank.
  bool is_place_of(std::uint64_t record, const Place& place) const {
    return place_of(record) == Place{place.segment & mask_, place.entry};
  }
  const CallEntry* find_segment(std::size_t segment) const {
    return part_at<CallEntry>(memory_, head_.segments[segment].load(std::memory_order_acquire), kEntriesOfSegment);
  }

  /// The entry, if it holds a whole call that was recorded when this look began.
  std::optional<RecordedCall> read(const CallEntry& entry) const {
    const std::uint64_t record = entry.record.load(std::memory_order_acquire);
    if (record == 0 || record > total_) return std::nullopt;
    const std::uint64_t ended = entry.ended.load(std::memory_order_acquire);
    const std::uint64_t head = entry.head.load(std::memory_order_acquire);
    const std::uint64_t where = entry.where.load(std::memory_order_acquire);
    const std::uint64_t started_ns = std::min(scale_.ns_of(entry.started.load(std::memory_order_acquire)), now_.ns);
    const std::uint64_t ended_ns = std::clamp(scale_.ns_of(ended & ~CallEntry::kFailed), started_ns, now_.ns);
    RecordedCall call{.record = record,
                      .started_ns = started_ns,
                      .ended_ns = ended == 0 ? 0 : ended_ns,
                      .failed = (ended & CallEntry::kFailed) != 0,
                      .sequence = entry.sequence.load(std::memory_order_acquire),
                      .kind = static_cast<std::uint8_t>(head % CallWords::kMost),
                      .dtype = static_cast<std::uint8_t>((head >> 8) % CallWords::kMost),
                      .op = static_cast<std::uint8_t>((head >> 16) % CallWords::kMost),
                      .group = static_cast<std::uint16_t>((head >> 32 & 0xffff) % kRecordedGroups),
                      .peer = static_cast<std::int16_t>(head >> 48),
                      .tag = static_cast<std::int32_t>(where),
                      .count = entry.count.load(std::memory_order_acquire),
                      .bytes = entry.bytes.load(std::memory_order_acquire),
                      .site = static_cast<std::uint32_t>((where >> 32) % kRecordedSites)};
    // After all of these, since each is an acquire.
    if (entry.record.load(std::memory_order_relaxed) != record) return std::nullopt;
    return call;
  }

 private:
  const JobMemory& memory_;
  const RecorderHead& head_;
  std::uint64_t total_;
  std::uint64_t mask_;
  TickMark now_;
  TickScale scale_;
};

Recording recorder_of(const RecorderHead& head, std::uint32_t slot, const Reader& reader) {
  Recording recording{.slot = slot,
                      .pid = head.pid,
                      .total = reader.total(),
                      .begun_ns = std::min(head.begin.ns, reader.now_ns()),
                      .read_ns = reader.now_ns(),
                      .calls = {},
                      .groups = {},
                      .sites = {},
                      .kinds = texts_of(head.words.kinds),
                      .dtypes = texts_of(head.words.dtypes),
                      .ops = texts_of(head.words.ops)};
  for (const RecordedGroupName& group : head.groups) recording.groups.push_back(read_group(group));
  const std::uint32_t sites = std::min<std::uint32_t>(head.site_count.load(std::memory_order_acquire), kRecordedSites);
  recording.sites.resize(kRecordedSites);
  for (std::uint32_t i = 1; i < sites; ++i)
    recording.sites[i] = {.file = text_of(head.sites[i].path), .line = head.sites[i].line};
  return recording;
}

}  // namespace

std::optional<Recording> read_recording(const JobMemory& memory, std::uint32_t slot) {
  const RecorderHead* const head = find_head(memory, slot);
  if (head == nullptr) return std::nullopt;
  const Reader reader(memory, *head);
  Recording recording = recorder_of(*head, slot, reader);
  for (std::size_t segment = 0; segment < kMostSegments; ++segment) {
    const CallEntry* const entries = reader.find_segment(segment);
    for (std::size_t i = 0; entries != nullptr && i < kEntriesOfSegment; ++i) {
      const auto call = reader.read(entries[i]);
      if (call && reader.is_place_of(call->record, {segment, i})) recording.calls.push_back(*call);
    }
  }
  std::ranges::sort(recording.calls, {}, &RecordedCall::record);
  const auto again = std::ranges::unique(recording.calls, {}, &RecordedCall::record);
  recording.calls.erase(again.begin(), again.end());
  return recording;
}

std::optional<Recording> read_recorder(const JobMemory& memory, std::uint32_t slot) {
  const RecorderHead* const head = find_head(memory, slot);
  if (head == nullptr) return std::nullopt;
  return recorder_of(*head, slot, Reader(memory, *head));
}

std::uint64_t count_recorded_calls(const JobMemory& memory, std::uint32_t slot) {
  const RecorderHead* const head = find_head(memory, slot);
  return head == nullptr ? 0 : head->next.load(std::memory_order_relaxed);
}

std::vector<RecordedCall> read_calls_since(const JobMemory& memory, std::uint32_t slot, std::uint64_t record,
                                           std::size_t limit) {
  std::vector<RecordedCall> calls;
  const RecorderHead* const head = find_head(memory, slot);
  if (head == nullptr || limit == 0) return calls;
  const Reader reader(memory, *head);
  const std::uint64_t newest = reader.total() > limit ? reader.total() - limit + 1 : 1;
  const std::uint64_t first = std::max({record, newest, reader.first_kept()});
  for (std::uint64_t number = first; number <= reader.total(); ++number) {
    const Place place = reader.place_of(number);
    const CallEntry* const entries = reader.find_segment(place.segment);
    const auto call = entries != nullptr ? reader.read(entries[place.entry]) : std::nullopt;
    if (call && call->record == number) calls.push_back(*call);
    // Overwritten since the look began: those after it may be there. Else it is being written.
    else if (entries == nullptr || entries[place.entry].record.load(std::memory_order_relaxed) <= number)
      break;
  }
  return calls;
}

std::optional<RecordedCall> read_call(const JobMemory& memory, std::uint32_t slot, std::uint64_t record) {
  const RecorderHead* const head = find_head(memory, slot);
  if (head == nullptr || record == 0) return std::nullopt;
  const Reader reader(memory, *head);
  const Place place = reader.place_of(record);
  const CallEntry* const entries = reader.find_segment(place.segment);
  auto call = entries != nullptr ? reader.read(entries[place.entry]) : std::nullopt;
  return call && call->record == record ? call : std::nullopt;
}

}  // namespace retinue
