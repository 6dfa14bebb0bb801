#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collective/board/line.h"
#include "collective/board/path_table.h"
#include "collective/board/wait_record.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

enum class MemberState : std::uint32_t { kComputing = 0, kWaiting = 1, kParked = 2, kLeft = 3 };

/// What one member writes and the others read. Each cache line has one writer, the bell excepted.
struct alignas(128) Member {
  Line lines[kLines];
  NameWords names[kLines];  ///< Of the functions in the lines; nobody reads them before something went wrong.

  /// Steps done within collectives, as sequence << kStepBits | step; only ever grows. Step 0 of a call: this member may
  /// be at the others' buffers.
  alignas(128) std::atomic<std::uint64_t> progress;
  /// Sequence of the first call that this member doesn't complete, whose buffers are its caller's again; 0: none.
  std::atomic<std::uint64_t> failed_call;

  alignas(128) std::atomic<std::uint32_t> cpu;  ///< CPU on which the member was last seen, plus one.
  std::atomic<MemberState> state;
  /// Rank, plus one, whose next post must ring the bell; 0: not parked; kAnybody.
  std::atomic<std::uint32_t> parked_for;
  std::atomic<std::int32_t> pid;  ///< 0: never joined.
  std::uint32_t process_slot;
  std::int32_t cache_domain;  ///< Set before the opening, as the next one; -1: not known.
  std::int32_t memory_node;
  std::atomic<std::uint64_t> relay;  ///< Offset of a leader's slots, see Relay; 0 until it has made them.

  alignas(128) std::atomic<std::uint32_t> bell;  ///< Futex on which the member parks; anybody bumps it.

  WaitRecord wait;
};

constexpr int kStepBits = 24;
constexpr std::uint32_t kAnybody = 0xffffffffu;

enum class FailureKind : std::uint32_t { kPeerLost = 1, kMismatch = 2, kTimeout = 3 };

/// Why a group can no longer be used: written once, by the first member that found out.
struct Poison {
  enum : std::uint32_t { kNone = 0, kWriting = 1, kWritten = 2 };
  static constexpr std::size_t kMaxRanks = 64;

  std::atomic<std::uint32_t> state;
  FailureKind kind;
  std::uint32_t rank_count;
  std::int32_t ranks[kMaxRanks];  ///< The ranks that are gone, with kPeerLost.
  char text[8192];
};

struct BoardHeader {
  std::atomic<std::uint64_t> generation;  ///< Unique in the job, so that a stale registry entry is noticed.
  std::uint32_t size;
  PathTable paths;  ///< What the group begins with; see Session::paths().
  TableSource paths_source;
  std::atomic<std::uint64_t> cpus[16];  ///< A bit per CPU that any member may run on; set by all before the opening.
  std::atomic<std::uint64_t> opening_calls;  ///< Calls that were no user's: the first, and those that measured.
  /// On the job's clock: when a member that waits for late ones may say so; 0: as soon as it is time. Its lowest
  /// bit: it was said before the end. See LateReport.
  std::atomic<std::uint64_t> next_late_report;
  std::atomic<std::uint32_t> unmatched_reported;  ///< See report_unmatched_calls().
  std::atomic<std::uint32_t> cgroup_cpus;  ///< The least that a member's cgroups leave it, rounded up; 0: no limit.
  alignas(
      128) std::atomic<std::uint32_t> parked;  ///< Members that are parked or about to; pairs with posts, see Waiter.
  alignas(128) Poison poison;
};

/// Bytes that a member may stage before it publishes its line, in its ring of such, see StageRing.
constexpr std::size_t kStageBytes = std::size_t{64} << 10;
constexpr std::size_t kStagingBytes = std::size_t{256} << 10;
static_assert(kMostListedBuffers * sizeof(std::uint64_t) <= kStageBytes);
/// Bytes of a buffer that travel in one step of a pipeline at most; there are three such buffers.
constexpr std::size_t kChunkBytes = std::size_t{128} << 10;
constexpr std::size_t kChunkBuffers = 3;
constexpr std::size_t kChunkRingBytes = kChunkBuffers * kChunkBytes;

/// A member's copy of a call, as diagnosis sees it.
struct SeenCall {
  std::uint64_t sequence = 0;  ///< 0: none.
  CallShape shape;
  SeenSite site;
  std::string function = {};        ///< With kFunction: its name,
  std::uint64_t element_bytes = 0;  ///< and what it takes.
};

/// A group's lines, staging and state in job memory. A view: it owns nothing.
class Board {
 public:
  Board() = default;
  Board(std::byte* base, int size);

  static std::size_t bytes_for(int size);
  /// Makes zeroed lines for `group` in `base`; `generation` last, with release.
  static void initialise(std::byte* base, const JobGroup& group, std::uint64_t generation);

  BoardHeader& header() const { return *reinterpret_cast<BoardHeader*>(base_); }
  Member& member(int rank) const { return members_[rank]; }
  int size() const { return size_; }

  /// Offset in job memory of the channel from one member to another; 0 until its sender makes it.
  std::atomic<std::uint64_t>& channel(int sender, int receiver) const {
    return channels_[static_cast<std::size_t>(receiver) * static_cast<std::size_t>(size_) +
                     static_cast<std::size_t>(sender)];
  }

  /// A member's staging ring and chunks.
  static constexpr std::size_t kDataBytes = kStagingBytes + kChunkRingBytes;
  std::byte* staging(int rank) const { return data_ + static_cast<std::size_t>(rank) * kDataBytes; }
  std::byte* chunks(int rank) const { return staging(rank) + kStagingBytes; }
  std::byte* chunk(int rank, std::uint64_t index) const { return chunks(rank) + index % kChunkBuffers * kChunkBytes; }

  /// The member's line of `sequence`, if it is there and stayed while it was copied. Its place in the source may
  /// already be that of a newer call.
  std::optional<SeenCall> read_line(int rank, std::uint64_t sequence) const;
  /// The newest of the member's calls.
  SeenCall newest_call(int rank) const;
  std::uint64_t newest_sequence(int rank) const;

 private:
  std::byte* base_ = nullptr;
  Member* members_ = nullptr;
  std::atomic<std::uint64_t>* channels_ = nullptr;
  std::byte* data_ = nullptr;
  int size_ = 0;
};

/// Makes the group fail for all, unless somebody did before. Any process of the job may do so that holds the board.
void poison(const Board& board, FailureKind kind, const std::string& text, const std::vector<int>& ranks);
/// The same in two steps, for several groups: no member throws before the second step. The first returns whether the
/// caller must make the second at once.
bool begin_poison(const Board& board);
void write_poison(const Board& board, FailureKind kind, const std::string& text, const std::vector<int>& ranks);

}  // namespace retinue
