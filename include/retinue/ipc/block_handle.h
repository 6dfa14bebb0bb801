#pragma once

#include <cstdint>

namespace retinue {

/// A handle that names a block of job memory in every process of the job. It is trivially copyable, so messages can
/// contain it. A handle that outlived its block names nothing: generations distinguish blocks of one descriptor.
struct BlockHandle {
  std::uint32_t generation = 0;
  std::uint32_t index = kNone;  ///< The block's descriptor.
  std::uint64_t offset = 0;     ///< Bytes from the start of job memory.
  std::uint64_t bytes = 0;      ///< The requested size.

  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit operator bool() const { return index != kNone; }
  friend bool operator==(const BlockHandle&, const BlockHandle&) = default;
};

/// The position, in a block, of lists of further blocks that it carries.
struct ReferenceLists {
  std::uint32_t first;   ///< Bytes from the block's start.
  std::uint32_t stride;  ///< Bytes from one list to the next.
  std::uint32_t count;
  std::uint32_t capacity;  ///< Handles that each list can have.
};

}  // namespace retinue
