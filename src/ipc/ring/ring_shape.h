#pragma once

#include <cstdint>

#include "retinue/ipc/block_handle.h"

/// What goes into a ring of messages when it is made, and what comes out of its functions.
namespace retinue {

struct RingShape {
  std::uint64_t type = 0;
  std::uint64_t capacity = 1;
  std::uint32_t space_bytes = 8;  ///< At most 8: slots of 16 bytes. Else at least a BlockHandle's.
  std::uint32_t is_joinable = 0;
  std::uint32_t redelivers = 0;
  std::uint32_t max_deliveries = 0;  ///< 0: without a limit.
  std::uint64_t no_consumer_ns = ~std::uint64_t{0};
  BlockHandle dead_letters = {};  ///< A ring of the same job, or none.
};

enum class RingResult {
  kDone,
  kWait,    ///< Full, or empty, or another process is about to change that.
  kClosed,  ///< And, for those who take, nothing is left.
};

/// A message in hand: nobody else gets it, and its slot stays occupied until finish().
struct TakenSlot {
  std::uint32_t index = 0;
  std::uint64_t state = 0;
};

}  // namespace retinue
