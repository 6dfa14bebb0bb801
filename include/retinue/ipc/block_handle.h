#pragma once

#include <cstdint>

namespace retinue {

/// Names a block of job memory in every process of the job; trivially copyable, so that it can travel in messages.
/// A handle that outlived its block names nothing: generations tell blocks of one descriptor apart.
struct BlockHandle {
  std::uint32_t generation = 0;
  std::uint32_t index = kNone;  ///< The block's descriptor.
  std::uint64_t offset = 0;     ///< Bytes from the start of job memory.
  std::uint64_t bytes = 0;      ///< The size asked for.

  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit operator bool() const { return index != kNone; }
  friend bool operator==(const BlockHandle&, const BlockHandle&) = default;
};

/// Where in a block lists of further blocks lie that it carries.
struct BlockShelves {
  std::uint32_t first;   ///< Bytes from the block's start.
  std::uint32_t stride;  ///< Bytes from one to the next.
  std::uint32_t count;
  std::uint32_t room;  ///< Handles on each.
};

}  // namespace retinue
