#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/site_text.h"
#include "collective/board/pattern.h"
#include "retinue/collective/call.h"
#include "retinue/collective/types.h"

namespace retinue {

/// What all members of a collective must agree on.
struct CallShape {
  CollectiveKind kind = CollectiveKind::kNone;
  Dtype dtype = Dtype::kBytes;
  ReduceOp op = ReduceOp::kSum;  ///< Of reductions alone.
  std::uint16_t root = 0;
  /// Of others that move data: what lies in these bytes is that call's business.
  OuterCall outer = OuterCall::kNone;
  std::uint64_t count = 0;  ///< Of one part: elements for reductions, bytes otherwise. Members may differ with kUneven.

  friend bool operator==(const CallShape&, const CallShape&) = default;
};

/// Whether data of these types may meet.
constexpr bool may_meet(Dtype a, Dtype b) {
  return a == b || a == Dtype::kBytes || b == Dtype::kBytes;
}

/// Where one member's data are; members may differ in it.
enum BufferPlace : std::uint8_t {
  kPrivateMemory = 0,
  kInJobMemory = 1,  ///< The line carries the offset.
  kStaged = 2,       ///< Copied into the member's staging before the line was published; may be combined.
  // Not of the place, but members may differ in these, too.
  kListed = 4,  ///< A table of PartEntry, one per rank, is where the member stages, before its data; or of offsets.
  kUneven = 8,  ///< Parts may have sizes of their own; `count` is the largest.
};

/// The most buffers of an all_reduce_coalesced whose places a member may stage, one word each.
constexpr std::size_t kMostListedBuffers = 8192;

/// Where one part of a member's input is.
struct PartEntry {
  std::uint64_t bytes;
  std::uint64_t offset;     ///< In job memory, with kInJobMemory.
  std::uint64_t staged_at;  ///< From where the member stages, with kStaged.
};

constexpr std::size_t kInlineBytes = 32;
constexpr std::size_t kFactorWord = kInlineBytes / 8 - 1;  ///< Of `inline_data`: the factor, with kPremulSum.
/// Of `inline_data`, with kFunction: which binary the function is in, where in it, and the size of an element.
constexpr std::size_t kFunctionWord = 1;
constexpr std::uint64_t kLines = 16;  ///< Slots of a member's ring: how far one may be ahead of the others.

/// Where a call was made: packed_line() in the first four bytes, then the path as write_path() shortens it,
/// filled with zeros.
using SiteWords = std::array<std::atomic<std::uint64_t>, 8>;
constexpr std::size_t kPathBytes = sizeof(SiteWords) - sizeof(unsigned);

struct SeenSite {
  unsigned line = 0;
  OuterCall outer = OuterCall::kNone;
  std::string file = {};
};

constexpr int kLineBits = 24;
/// A site's source line, and what was called there.
constexpr std::uint32_t packed_line(const CallSite& site) {
  return (site.line & ((1u << kLineBits) - 1)) | static_cast<std::uint32_t>(site.outer) << kLineBits;
}
SeenSite unpacked_site(std::uint32_t line, std::string file);

inline std::string site_text(const SeenSite& site) {
  return site_text(site.file, site.line);
}

SeenSite read_site(const SiteWords& site);

/// The name of a member's function in a line with kFunction, filled with zeros.
using NameWords = std::array<std::atomic<std::uint64_t>, 16>;

/// The only writer of such a place.
class NameWriter {
 public:
  void write(NameWords& words, const ReduceFunction& function) {
    if (function_ != &function) write_anew(words, function);
  }

 private:
  void write_anew(NameWords& words, const ReduceFunction& function);

  const ReduceFunction* function_ = nullptr;
};

/// The only writer of a place for call sites; a call in a loop writes it once.
class SiteWriter {
 public:
  void write(SiteWords& words, const CallSite& site) {
    if (file_ != site.file || line_ != packed_line(site)) write_anew(words, site);
  }

 private:
  void write_anew(SiteWords& words, const CallSite& site);

  const char* file_ = nullptr;
  std::uint32_t line_ = 0;
};

/// One call of one member, written by that member alone: `head` first, `sequence` last.
///
/// The slot of sequence s is written again for s + kLines. A member publishes that only when it knows that all have
/// published s + 1, which each did after finishing s: nobody who still takes part in s can find its slot overwritten
/// (Session::await_agreement). Who only looks (diagnosis, another process) reads `head` last, whose tag tells whether
/// the slot was being written again meanwhile.
struct alignas(64) LineData {
  std::atomic<std::uint64_t> sequence;
  std::atomic<std::uint64_t> head;  ///< kind, dtype, op or outer call, place, root (16 bits), tag, lowest byte first.
  std::atomic<std::uint64_t> count;
  std::atomic<std::uint64_t> where;  ///< See pack_where().
  std::array<std::atomic<std::uint64_t>, kInlineBytes / 8> inline_data;
};
struct alignas(128) Line : LineData {
  SiteWords site;  ///< On a cache line of its own: nobody reads it before something went wrong.
};
static_assert(sizeof(LineData) == 64 && sizeof(Line) == 128);

constexpr std::uint64_t kPlaceMask = std::uint64_t{0xff} << 24;

constexpr std::uint64_t pack_head(const CallShape& shape, std::uint8_t place, std::uint64_t sequence) {
  return static_cast<std::uint64_t>(shape.kind) | static_cast<std::uint64_t>(shape.dtype) << 8 |
         (static_cast<std::uint64_t>(shape.op) | static_cast<std::uint64_t>(shape.outer)) << 16 |
         static_cast<std::uint64_t>(place) << 24 | static_cast<std::uint64_t>(shape.root) << 32 | sequence << 48;
}

/// Whether `head` was written for `sequence`, as far as its tag of 16 bits tells.
constexpr bool is_head_of(std::uint64_t head, std::uint64_t sequence) {
  return head >> 48 == (sequence & 0xffff);
}

/// Staging is by whole cache lines.
constexpr std::size_t kStagingLine = 64;
constexpr int kOffsetBits = 48;

/// The input's offset in job memory, with kInJobMemory, and where in its rings the member stages, with kStaged or
/// kListed, else where it fills its first chunk.
constexpr std::uint64_t pack_where(std::uint64_t offset, std::size_t staged_at) {
  return std::uint64_t{staged_at / kStagingLine} << kOffsetBits | offset;
}
inline std::uint64_t input_offset(const LineData& line) {
  return line.where.load(std::memory_order_relaxed) & ((std::uint64_t{1} << kOffsetBits) - 1);
}
inline std::size_t staged_at(const LineData& line) {
  return static_cast<std::size_t>(line.where.load(std::memory_order_relaxed) >> kOffsetBits) * kStagingLine;
}

/// Whether calls with these heads may meet, but for their counts.
constexpr bool heads_may_meet(std::uint64_t a, std::uint64_t b) {
  constexpr std::uint64_t kDtypeMask = std::uint64_t{0xff} << 8;
  const std::uint64_t differences = (a ^ b) & ~kPlaceMask;
  return differences == 0 || ((differences & ~kDtypeMask) == 0 &&
                              may_meet(static_cast<Dtype>(a >> 8 & 0xff), static_cast<Dtype>(b >> 8 & 0xff)));
}

constexpr std::uint8_t place_of(std::uint64_t head) {
  return static_cast<std::uint8_t>(head >> 24);
}

constexpr CallShape unpack(std::uint64_t head, std::uint64_t count) {
  const auto kind = static_cast<CollectiveKind>(head & 0xff);
  const std::uint64_t third = head >> 16 & 0xff;
  const bool reduces = is_reduction(kind);
  return {.kind = kind,
          .dtype = static_cast<Dtype>(head >> 8 & 0xff),
          .op = reduces ? static_cast<ReduceOp>(third) : ReduceOp::kSum,
          .root = static_cast<std::uint16_t>(head >> 32),
          .outer = reduces ? OuterCall::kNone : static_cast<OuterCall>(third),
          .count = count};
}

}  // namespace retinue
