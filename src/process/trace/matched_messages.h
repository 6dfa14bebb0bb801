#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "process/trace/merged_calls.h"

namespace retinue {

/// Messages from one member of a group to another.
struct MessageWay {
  std::uint32_t group = 0;
  int from = 0;  ///< Ranks in the group.
  int to = 0;

  auto operator<=>(const MessageWay&) const = default;
};

/// A send or a receive, and which message of its way it is of, from 1. A send and the receive that it met have the same
/// number; one that met none has a number of its own.
struct NumberedMessage {
  CallOf call;
  std::uint64_t number = 0;
};

/// Sends and receives, matched as they were: in order, by tag. Left out are those of which nobody knows which they
/// were: receives from anybody that nothing came to, all between members of which one no longer has its first calls,
/// and messages to oneself.
std::map<MessageWay, std::vector<NumberedMessage>> match_messages(const MergedCalls& calls);

}  // namespace retinue
