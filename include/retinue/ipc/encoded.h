#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "retinue/ipc/block_handle.h"
#include "retinue/ipc/shared_block.h"

/// What becomes of a value that is archived. Not used directly.
namespace retinue::detail {

/// An archived value, and the blocks of job memory that it refers to: whoever has it holds them.
struct Encoded {
  std::string bytes;
  std::vector<SharedBlock> references;
  std::vector<std::shared_ptr<void>> remains = {};  ///< What the value's way into job memory left behind.
  std::vector<std::function<void()>> undo = {};     ///< Takes back what archiving changed in the caller's objects.
};

/// Of what could not be sent: gives up the blocks, and makes the caller's objects what they were.
void take_back(Encoded& encoded) noexcept;

/// A row of bytes that an archive has in a block of its own, at that place among its other bytes.
struct RowBlock {
  std::uint64_t position = 0;
  BlockHandle block;
};

/// What a value is archived for.
enum class Purpose : std::uint8_t {
  kValue,
  kMessage,   ///< It is sent at once; see encode_message(). Its receiver need not wait until what it left behind is
              ///< freed.
  kCall,      ///< Arguments of a call, or what a call returned.
  kReturned,  ///< What a call returned, read when its sender has ended.
};

/// Whether long rows of bytes lie in blocks of their own, which are copied once, into job memory.
constexpr bool has_row_blocks(Purpose purpose) {
  return purpose == Purpose::kCall || purpose == Purpose::kReturned;
}

}  // namespace retinue::detail
