#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collective/board/board.h"
#include "collective/call/call.h"

/// What ranks that share no memory tell each other of the call that they are about to make.
namespace retinue {

struct CallNotice {
  CallNotice() = default;
  CallNotice(const Call& call, std::uint64_t sequence);

  /// What of `call` all ranks must have in common differs on the two.
  bool differs_from(const CallNotice& other, bool counts_may_differ) const;
  SeenCall seen() const;

  std::uint64_t sequence = 0;
  CallShape shape = {};
  double factor = 1;
  std::uint64_t signature = 0;  ///< Of an all_reduce_coalesced: of its buffers' sizes.
  std::uint64_t function_object = 0;
  std::uint64_t function_offset = 0;
  std::uint64_t element_bytes = 0;
  std::uint32_t is_uneven = 0;
  std::uint32_t line = 0;  ///< See packed_line().
  char file[56] = {};
  char function[64] = {};
};

/// That `taker` takes another number of bytes from `giver` than that gives.
std::string wrong_size(const std::string& group, std::span<const CallNotice> all, std::size_t taker,
                       std::uint64_t taken, std::size_t giver, std::uint64_t given);

/// Throws CollectiveMismatch where the ranks of this group are about to make different calls.
void check_notices(const std::string& group, std::span<const CallNotice> all, bool counts_may_differ);

}  // namespace retinue
