#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ipc/ring/ring_layout.h"
#include "os/sync/robust_mutex.h"
#include "retinue/ipc/block_handle.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A piece of a chain: records one after the other, in a block of its own that the chain's block holds.
struct ChainSegment {
  BlockHandle self;
  std::uint64_t space_bytes;
  std::atomic<std::uint64_t> next;  ///< Offset of the next segment in job memory, 0 for none.
  /// Where the records begin that nobody got, and in the upper half where they end: one store gets or puts a message.
  std::atomic<std::uint64_t> span;
  std::byte space[];
};

/// How a chain lies in its block.
struct ChainHeader {
  std::uint64_t magic;
  std::uint64_t type;                ///< Hash of the messages' type.
  RobustMutex mutex;                 ///< Guards all that follows but the bell.
  std::atomic<std::uint64_t> first;  ///< Offsets of segments, 0 before the first message.
  std::atomic<std::uint64_t> last;
  /// A block that its holder is about to put into the chain or to take out of it.
  BlockHandle doubtful;
  std::atomic<std::uint32_t> has_doubtful;
  alignas(128) std::atomic<std::uint64_t> count;  ///< Messages. Read without the lock, too.
  std::atomic<std::uint32_t> spin_budget;
  RingBell not_empty;

  static constexpr std::uint64_t kMagic = 0x4e49414845554552ull;
};

/// A message that was got: copied, or in a block that this process holds until this object ends.
class ChainMessage {
 public:
  explicit ChainMessage(JobMemory& memory) : memory_(memory) {}
  ~ChainMessage();
  ChainMessage(const ChainMessage&) = delete;
  ChainMessage& operator=(const ChainMessage&) = delete;

  /// Errors: UsageError where its block is gone.
  std::span<const std::byte> bytes() const;

 private:
  friend class MessageChain;

  JobMemory& memory_;
  std::array<std::byte, 256> short_one_;
  std::vector<std::byte> long_one_;
  std::span<const std::byte> bytes_;
  std::optional<BlockHandle> payload_;
};

/// A row of messages without an end of its own, in blocks of job memory: each operation is one step under a lock that
/// survives its holder. Whoever is killed in it has put, or got, or has not; the next one brings the rest in order.
///
/// Threads: all functions, from any thread of any process of the job.
/// Errors: TimeoutError when another process stands still in it, or in the block table.
class MessageChain {
 public:
  using Time = std::chrono::nanoseconds;

  static constexpr std::size_t block_bytes() { return sizeof(ChainHeader); }
  /// Makes an empty chain of a block.
  static void lay_out(JobMemory& memory, const BlockHandle& block, std::uint64_t type);
  /// The chain in a block. Errors: UsageError if there is none.
  MessageChain(JobMemory& memory, const BlockHandle& block);

  ChainHeader& header() const noexcept { return *header_; }

  /// Longer messages come as payloads.
  static constexpr std::size_t kMostBytes = 4096;
  /// Errors: SharedMemoryExhausted.
  void put(std::span<const std::byte> message);
  /// A message in a block that this process holds once; the chain holds it then. After an error it is the caller's.
  void put_payload(const BlockHandle& payload);

  /// False: there is none, or somebody stood in the way for `patience`.
  bool take(ChainMessage& message, Time patience);
  bool is_empty(Time patience);

  /// Whether a look under the lock can find one. False may become wrong at any time, true is for a look.
  bool may_have_message() const {
    return header_->count.load(std::memory_order_seq_cst) != 0 || header_->mutex.is_orphaned();
  }

 private:
  class Locked;
  struct Record;
  struct Span;

  ChainSegment* segment(std::uint64_t offset) const;
  Span span_of(const ChainSegment& segment) const;
  static void set_span(ChainSegment& segment, Span span);
  [[noreturn]] void throw_overwritten() const;
  std::byte* make_space(std::uint64_t bytes);
  void add_segment(std::uint64_t space_bytes);
  void commit_put(std::uint64_t bytes);
  ChainSegment* first_with_message();
  void drop_first(ChainSegment& first);
  void release_payload(const BlockHandle& payload);
  void doubt(const BlockHandle& block);
  void end_doubt() { header_->has_doubtful.store(0, std::memory_order_release); }
  void repair();
  bool look_through(ChainSegment& segment, std::uint64_t& count) const;
  Record& record_at(const ChainSegment& segment, std::uint32_t position, std::uint32_t end) const;

  JobMemory& memory_;
  BlockHandle block_;
  ChainHeader* header_;
};

}  // namespace retinue
