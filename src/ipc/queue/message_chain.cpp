#include "ipc/queue/message_chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "ipc/memory/block_table.h"
#include "ipc/memory/payload.h"
#include "os/machine/memory.h"
#include "os/testing/crash_point.h"
#include "retinue/base/error.h"

namespace retinue {

/// What stands before each message.
struct MessageChain::Record {
  std::uint64_t bytes;  ///< Of the message, or kInPayload: a BlockHandle follows.
  std::byte message[];

  static constexpr std::uint64_t kInPayload = ~std::uint64_t{0};

  std::uint64_t content_bytes() const { return bytes == kInPayload ? sizeof(BlockHandle) : bytes; }
  BlockHandle payload() const {
    BlockHandle handle;
    std::memcpy(&handle, message, sizeof handle);
    return handle;
  }
};

struct MessageChain::Span {
  std::uint32_t begin;
  std::uint32_t end;

  explicit Span(std::uint64_t word)
      : begin(static_cast<std::uint32_t>(word)), end(static_cast<std::uint32_t>(word >> 32)) {}
  Span(std::uint64_t from, std::uint64_t to)
      : begin(static_cast<std::uint32_t>(from)), end(static_cast<std::uint32_t>(to)) {}
  std::uint64_t word() const { return std::uint64_t{end} << 32 | begin; }
};

namespace {

constexpr std::uint64_t kFirstSegmentBytes = std::uint64_t{16} << 10;
constexpr std::uint64_t kLargestSegmentBytes = std::uint64_t{1} << 20;

std::uint64_t record_bytes(std::uint64_t content_bytes) {
  return sizeof(std::uint64_t) + round_up(content_bytes, sizeof(std::uint64_t));
}

bool are_same(const BlockHandle& a, const BlockHandle& b) {
  return a.index == b.index && a.generation == b.generation;
}

}  // namespace

ChainMessage::~ChainMessage() {
  try {
    if (payload_) memory_.release(*payload_);
  } catch (const Error&) {
    // Given back with this process's other blocks.
  }
}

std::span<const std::byte> ChainMessage::bytes() const {
  return payload_ ? std::as_bytes(std::span(payload_bytes(memory_, *payload_))) : bytes_;
}

/// The chain while this thread has its lock, in order.
class MessageChain::Locked {
 public:
  /// Errors: TimeoutError, which names who stands in the way.
  explicit Locked(MessageChain& chain) : mutex_(chain.header_->mutex) {
    enter(chain, mutex_.lock(chain.memory_.lock_patience()));
  }
  /// Maybe not locked: is_locked() tells.
  Locked(MessageChain& chain, Time patience) : mutex_(chain.header_->mutex) {
    mutex_.spin_while_held(RobustMutex::kPausesOfASleep);
    enter(chain, mutex_.try_lock(patience));
  }
  ~Locked() {
    if (is_locked_) mutex_.unlock();
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

  bool is_locked() const { return is_locked_; }

 private:
  void enter(MessageChain& chain, RobustMutex::Result result) {
    is_locked_ = result == RobustMutex::Result::kLocked || result == RobustMutex::Result::kOwnerDied;
    const bool has_doubtful = is_locked_ && chain.header_->has_doubtful.load(std::memory_order_relaxed) != 0;
    if (result != RobustMutex::Result::kOwnerDied && !has_doubtful) return;
    try {
      chain.repair();
    } catch (...) {
      mutex_.unlock();  // The doubt stays for the next one.
      throw;
    }
  }

  RobustMutex& mutex_;
  bool is_locked_ = false;
};

void MessageChain::lay_out(JobMemory& memory, const BlockHandle& block, std::uint64_t type) {
  std::byte* const at = memory.at(block.offset);
  std::memset(at, 0, sizeof(ChainHeader));
  auto* const header = new (at) ChainHeader();
  header->magic = ChainHeader::kMagic;
  header->type = type;
  header->mutex.init();
}

MessageChain::MessageChain(JobMemory& memory, const BlockHandle& block)
    : memory_(memory), block_(block), header_(memory.at<ChainHeader>(block.offset)) {
  if (block.bytes < sizeof(ChainHeader) || header_->magic != ChainHeader::kMagic)
    throw UsageError(fmt::format("the block at offset {} of job memory is not a SimpleQueue", block.offset));
}

/// The commit of every put and get: who comes after this one's death sees it, or nothing of it.
void MessageChain::set_span(ChainSegment& segment, Span span) {
  RETINUE_CRASH_POINT();
  segment.span.store(span.word(), std::memory_order_release);
  RETINUE_CRASH_POINT();
}

/// Null for 0. Errors: UsageError where none can be.
ChainSegment* MessageChain::segment(std::uint64_t offset) const {
  if (offset == 0) return nullptr;
  const std::uint64_t capacity = memory_.capacity_bytes();
  if (offset % alignof(ChainSegment) != 0 || offset > capacity - sizeof(ChainSegment)) throw_overwritten();
  auto* const segment = memory_.at<ChainSegment>(offset);
  if (segment->self.offset != offset || segment->space_bytes > capacity - sizeof(ChainSegment) - offset)
    throw_overwritten();
  return segment;
}

void MessageChain::throw_overwritten() const {
  throw UsageError(fmt::format("the SimpleQueue at offset {} of job memory was overwritten", block_.offset));
}

/// Where its records are. Errors: UsageError where they can't be.
MessageChain::Span MessageChain::span_of(const ChainSegment& segment) const {
  const Span span(segment.span.load(std::memory_order_relaxed));
  const bool is_one =
      span.begin <= span.end && span.end <= segment.space_bytes && (span.begin | span.end) % sizeof(std::uint64_t) == 0;
  if (!is_one) throw_overwritten();
  return span;
}

/// To be said before the block comes into the chain or leaves it: repair() asks the chain which it was.
void MessageChain::doubt(const BlockHandle& block) {
  header_->doubtful = block;
  RETINUE_CRASH_POINT();
  header_->has_doubtful.store(1, std::memory_order_release);
  RETINUE_CRASH_POINT();
}

void MessageChain::put(std::span<const std::byte> message) {
  const Locked locked(*this);
  const std::uint64_t bytes = record_bytes(message.size());
  auto& record = *reinterpret_cast<Record*>(make_space(bytes));
  record.bytes = message.size();
  if (!message.empty()) std::memcpy(record.message, message.data(), message.size());
  commit_put(bytes);
}

void MessageChain::put_payload(const BlockHandle& payload) {
  const Locked locked(*this);
  const std::uint64_t bytes = record_bytes(sizeof payload);
  auto& record = *reinterpret_cast<Record*>(make_space(bytes));
  record.bytes = Record::kInPayload;
  std::memcpy(record.message, &payload, sizeof payload);
  doubt(payload);
  memory_.hand_over(payload, block_);  // The sender may be gone before anybody takes the message.
  commit_put(bytes);
  end_doubt();
}

void MessageChain::commit_put(std::uint64_t bytes) {
  ChainSegment& last = *segment(header_->last.load(std::memory_order_relaxed));
  const Span span = span_of(last);
  set_span(last, {span.begin, span.end + bytes});
  header_->count.fetch_add(1, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
}

/// Where the next record goes.
std::byte* MessageChain::make_space(std::uint64_t bytes) {
  ChainSegment* last = segment(header_->last.load(std::memory_order_relaxed));
  if (last == nullptr || last->space_bytes - span_of(*last).end < bytes) {
    const bool is_used_up = last != nullptr && span_of(*last).begin == span_of(*last).end;
    if (is_used_up) {
      set_span(*last, {0, 0});
    } else {
      // Who is behind by more than a segment will be so by more.
      const bool is_behind =
          last != nullptr && header_->first.load(std::memory_order_relaxed) != memory_.offset_of(last);
      const std::uint64_t before =
          last == nullptr ? kFirstSegmentBytes : std::clamp(last->self.bytes, kFirstSegmentBytes, kLargestSegmentBytes);
      add_segment(std::min(is_behind ? before * 2 : before, kLargestSegmentBytes));
      last = segment(header_->last.load(std::memory_order_relaxed));
    }
  }
  return last->space + span_of(*last).end;
}

void MessageChain::add_segment(std::uint64_t bytes) {
  const BlockHandle handle = memory_.allocate(bytes);
  auto* const added = new (memory_.at(handle.offset)) ChainSegment();
  added->self = handle;
  added->space_bytes = bytes - sizeof(ChainSegment);
  RETINUE_CRASH_POINT();
  try {
    doubt(handle);
    memory_.hand_over(handle, block_);
  } catch (...) {
    memory_.release(handle);
    throw;
  }
  RETINUE_CRASH_POINT();
  ChainSegment* const last = segment(header_->last.load(std::memory_order_relaxed));
  (last == nullptr ? header_->first : last->next).store(handle.offset, std::memory_order_release);
  RETINUE_CRASH_POINT();
  header_->last.store(handle.offset, std::memory_order_release);
  RETINUE_CRASH_POINT();
  end_doubt();
  RETINUE_CRASH_POINT();
}

/// The first segment that has a record; those before it go.
ChainSegment* MessageChain::first_with_message() {
  for (std::uint32_t segments = 0;; ++segments) {
    if (segments > kMaxBlocks) throw_overwritten();  // They go in a circle.
    ChainSegment* const first = segment(header_->first.load(std::memory_order_relaxed));
    if (first == nullptr || span_of(*first).begin != span_of(*first).end) return first;
    if (first->next.load(std::memory_order_relaxed) == 0) return nullptr;
    drop_first(*first);
  }
}

void MessageChain::drop_first(ChainSegment& first) {
  const BlockHandle handle = first.self;
  doubt(handle);
  header_->first.store(first.next.load(std::memory_order_relaxed), std::memory_order_release);
  RETINUE_CRASH_POINT();
  memory_.take_from_holder(handle, block_);
  RETINUE_CRASH_POINT();
  end_doubt();
  RETINUE_CRASH_POINT();
}

MessageChain::Record& MessageChain::record_at(const ChainSegment& segment, std::uint32_t position,
                                              std::uint32_t end) const {
  auto* const record = const_cast<Record*>(reinterpret_cast<const Record*>(segment.space + position));
  const bool is_one = end <= segment.space_bytes && position + sizeof(Record) <= end &&
                      (record->bytes == Record::kInPayload || record->bytes <= kMostBytes) &&
                      record_bytes(record->content_bytes()) <= end - position;
  if (!is_one) throw_overwritten();
  return *record;
}

bool MessageChain::take(ChainMessage& message, Time patience) {
  if (!may_have_message()) return false;
  const Locked locked(*this, patience);
  ChainSegment* const first = locked.is_locked() ? first_with_message() : nullptr;
  if (first == nullptr) return false;
  const Span span = span_of(*first);
  const Record& record = record_at(*first, span.begin, span.end);
  const Span after(span.begin + record_bytes(record.content_bytes()), span.end);
  if (record.bytes == Record::kInPayload) {
    const BlockHandle payload = record.payload();
    memory_.retain(payload);
    message.payload_ = payload;
    doubt(payload);
    set_span(*first, after);
    release_payload(payload);
  } else {
    if (record.bytes > message.short_one_.size()) message.long_one_.resize(record.bytes);
    std::byte* const to = message.long_one_.empty() ? message.short_one_.data() : message.long_one_.data();
    std::memcpy(to, record.message, record.bytes);
    message.bytes_ = {to, record.bytes};
    set_span(*first, after);
  }
  header_->count.fetch_sub(1, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  return true;
}

/// Of a payload that was got.
void MessageChain::release_payload(const BlockHandle& payload) {
  try {
    memory_.take_from_holder(payload, block_);
    RETINUE_CRASH_POINT();
    end_doubt();
  } catch (const Error&) {
    // The doubt stays, for the next one to end.
  }
}

bool MessageChain::is_empty(Time patience) {
  if (!header_->mutex.is_orphaned()) return header_->count.load(std::memory_order_seq_cst) == 0;
  const Locked locked(*this, patience);
  return header_->count.load(std::memory_order_seq_cst) == 0;
}

/// Counts the segment's records; whether it or one of them is the doubtful block.
bool MessageChain::look_through(ChainSegment& segment, std::uint64_t& count) const {
  bool has_doubtful = are_same(segment.self, header_->doubtful);
  const Span span = span_of(segment);
  for (std::uint32_t position = span.begin; position < span.end; ++count) {
    const Record& record = record_at(segment, position, span.end);
    if (record.bytes == Record::kInPayload && are_same(record.payload(), header_->doubtful)) has_doubtful = true;
    position += static_cast<std::uint32_t>(record_bytes(record.content_bytes()));
  }
  return has_doubtful;
}

/// Everything but the segments and what links them follows from these. May be killed, too: it only begins anew.
void MessageChain::repair() {
  std::uint64_t count = 0;
  bool is_in_chain = false;
  std::uint64_t last = 0;
  std::uint32_t segments = 0;
  for (std::uint64_t at = header_->first.load(std::memory_order_acquire); at != 0;
       at = segment(at)->next.load(std::memory_order_acquire)) {
    if (++segments > kMaxBlocks) throw_overwritten();
    is_in_chain |= look_through(*segment(at), count);
    last = at;
  }
  header_->last.store(last, std::memory_order_release);
  RETINUE_CRASH_POINT();
  header_->count.store(count, std::memory_order_seq_cst);
  RETINUE_CRASH_POINT();
  const bool has_doubtful = header_->has_doubtful.load(std::memory_order_relaxed) != 0;
  // A stale handle names none of the chain's blocks: this does no harm a second time.
  if (has_doubtful && !is_in_chain) memory_.take_from_holder(header_->doubtful, block_);
  RETINUE_CRASH_POINT();
  end_doubt();
}

}  // namespace retinue
