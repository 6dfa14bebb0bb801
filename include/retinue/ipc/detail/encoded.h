#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "retinue/ipc/block_handle.h"
#include "retinue/ipc/shared_block.h"

/// An archived value and its use. Not used directly.
namespace retinue::detail {

/// An archived value and the blocks of job memory that it refers to. The owner of an Encoded holds them.
struct Encoded {
  std::string bytes;
  std::vector<SharedBlock> references;
  std::vector<std::shared_ptr<void>> remains = {};  ///< What remains from moving the value into job memory.
  std::vector<std::function<void()>> undo = {};     ///< Reverts what archiving changed in the caller's objects.
};

/// Reverts the archiving of a value that couldn't be sent: releases the blocks, and restores the caller's objects.
void take_back(Encoded& encoded) noexcept;

/// A row of bytes that an archive has in a block of its own, at that position among its other bytes.
struct RowBlock {
  std::uint64_t position = 0;
  BlockHandle block;
};

/// The purpose of an archived value.
enum class Purpose : std::uint8_t {
  kValue,
  kMessage,   ///< It is sent at once; see encode_message(). Its receiver need not wait until what it left behind is
              ///< freed.
  kCall,      ///< Arguments of a call, or what a call returned.
  kReturned,  ///< What a call returned, read when its sender has ended.
};

/// Whether long rows of bytes are in blocks of their own, which are copied once, into job memory.
constexpr bool has_row_blocks(Purpose purpose) {
  return purpose == Purpose::kCall || purpose == Purpose::kReturned;
}

}  // namespace retinue::detail
