#pragma once

#include <cstdint>

#include "queue/placement.h"
#include "retinue/ipc/queue.h"
#include "samples.h"

/// What the ranks of the case `queue` do with messages of 8 bytes.
namespace retinue::bench {

/// Messages that fit each of the queues and rings that are compared.
inline constexpr std::size_t kQueueCapacity = 1024;

struct WordRound : Round {
  enum class Way : std::uint8_t {
    kQueue,
    kBareRing,  ///< What any ring of such slots costs at least: one producer, one consumer, no deaths, no waiting.
    kFutex,     ///< What any wake-up costs at least. Round trips only.
  };

  Way way = Way::kQueue;
  Placement placement = Placement::kOneEach;
  int pairs = 1;     ///< Producers, and as many consumers. Round trips: 1.
  int messages = 0;  ///< Of each producer, in each iteration.
  Queue<std::uint64_t> there = {};
  Queue<std::uint64_t> back = {};
  SharedBlock bare = {};  ///< The bare rings, or the futexes.

  template <class Archive>
  void serialize(Archive& archive) {
    Round::serialize(archive);
    archive(way, placement, pairs, messages, there, back, bare);
  }
};

/// Messages from `pairs` producers to as many consumers, each of which gets as many as one producer puts. The consumers
/// check order and sum. Errors: std::runtime_error when a message is lost, comes twice or out of order.
Spans word_flow_spans(WordRound round);

/// Rank 0 sends a message to rank 1 and waits for the answer. Errors: std::runtime_error for a wrong answer.
Spans word_round_trip_spans(WordRound round);

}  // namespace retinue::bench
