#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "retinue/collective/call.h"

namespace retinue {

constexpr int kAnySource = -1;
constexpr int kAnyTag = -1;

namespace detail {
constexpr int kReplyTag = -2;  ///< Tag of recv_object()'s replies; no receive with kAnyTag takes them.

}  // namespace detail

/// The result of a receive.
struct Received {
  int source = kAnySource;
  int tag = kAnyTag;
  std::size_t bytes = 0;
};

/// One message of Communicator::batch_isend_irecv().
struct P2POp {
  enum class Kind : std::uint8_t { kSend, kReceive };

  Kind kind = Kind::kSend;
  ConstBytes data = {};  ///< With kSend.
  Bytes buffer = {};     ///< With kReceive.
  int peer = 0;
  int tag = 0;

  static P2POp isend(ConstBytes data, int destination, int tag = 0) {
    return {.kind = Kind::kSend, .data = data, .peer = destination, .tag = tag};
  }
  static P2POp irecv(Bytes buffer, int source, int tag = 0) {
    return {.kind = Kind::kReceive, .buffer = buffer, .peer = source, .tag = tag};
  }
};

}  // namespace retinue
