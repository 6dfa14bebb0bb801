#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "collective/board/board.h"
#include "collective/board/line.h"

namespace retinue {

/// Where in its ring of kStagingBytes a member stages its calls' data, one behind the other.
///
/// Going round the whole of it, also with little data, is what makes staging fast: a line is slow to store to while the
/// cache of who read it last has it still, which on Intel's CPUs it has until it has read some 192 KiB of others.
class StageRing {
 public:
  /// To be called in each call of the member, before the others.
  void begin_call(std::uint64_t sequence) { begins_[sequence % kLines] = end_; }

  /// Which call all members must have published before `bytes` may be staged in `sequence`, when it is known that they
  /// published `agreed`; 0: that is enough. Never more than `sequence` - 1.
  std::uint64_t call_before(std::uint64_t sequence, std::uint64_t agreed, std::size_t bytes) const;

  /// A place for that many bytes.
  std::size_t take(std::size_t bytes);
  /// The one that was taken last.
  std::size_t place() const { return static_cast<std::size_t>(begin_ % kStagingBytes); }

  /// Where the member's next call fills its first chunk, if it fills any: behind those of the last that did.
  std::size_t next_chunk() const { return next_chunk_; }
  void set_next_chunk(std::size_t place) { next_chunk_ = place; }

  /// The same of calls in which all members fill whole chunks, alike and as many: counted from the first call on.
  /// Returns the number of the first of `chunks`.
  std::uint64_t take_chunks(std::uint64_t chunks) { return std::exchange(chunks_, chunks_ + chunks); }

 private:
  static constexpr std::uint64_t in_lines(std::size_t bytes) {
    return (bytes + kStagingLine - 1) / kStagingLine * kStagingLine;
  }
  std::uint64_t begin_of(std::uint64_t bytes) const;

  std::uint64_t begin_ = 0;
  std::uint64_t end_ = 0;                          ///< Bytes staged so far, and passed over at the ring's end.
  std::array<std::uint64_t, kLines> begins_ = {};  ///< The same before each of the last calls.
  std::size_t next_chunk_ = 0;
  std::uint64_t chunks_ = 0;
};

}  // namespace retinue
