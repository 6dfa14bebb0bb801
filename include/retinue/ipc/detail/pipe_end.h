#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "retinue/ipc/detail/message_channel.h"
#include "retinue/ipc/shared_block.h"

namespace retinue {

struct PipeOptions {
  /// true: both ends send and receive. false: the second sends, the first receives.
  bool duplex = true;
  /// The number of messages that each direction holds.
  std::size_t capacity = 64;
  /// For when several processes hold an end together: one of them may die while it has a message.
  OnConsumerDeath on_consumer_death = OnConsumerDeath::kReport;
  /// Space for a message in its slot, in bytes; 0: chosen for its type. Longer messages go through a block of their
  /// own.
  std::size_t message_bytes = 0;
  /// As in QueueOptions.
  std::uint32_t max_deliveries = 3;
};

namespace detail {

/// The untyped part of a Connection. Not used directly.
///
/// It holds a block that represents this end: while any process or message holds that block, the end is open.
class PipeEnd {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes the two ends of a new pipe. Errors: UsageError, SharedMemoryExhausted.
  static std::pair<std::shared_ptr<PipeEnd>, std::shared_ptr<PipeEnd>> create(const std::shared_ptr<JobMemory>& memory,
                                                                              const PipeOptions& options,
                                                                              std::uint64_t type,
                                                                              std::size_t space_bytes);
  /// Opens the end in a block. Errors: UsageError if there is none, or one of another type.
  static std::shared_ptr<PipeEnd> open(const SharedBlock& block, std::uint64_t type);
  ~PipeEnd();
  PipeEnd(const PipeEnd&) = delete;
  PipeEnd& operator=(const PipeEnd&) = delete;

  const SharedBlock& block() const noexcept { return block_; }
  bool can_receive() const noexcept { return in_ != nullptr; }
  bool can_send() const noexcept { return out_ != nullptr; }

  /// As MessageChannel::announce().
  void announce();
  /// Sends a message and the blocks that it refers to. Returns false if not in time.
  bool send(std::span<const std::byte> message, const std::vector<SharedBlock>& references, Time timeout);
  /// Passes the next message to `reader`. Returns false if not in time.
  bool receive(Time timeout, const std::function<void(std::span<const std::byte>)>& reader);
  bool poll(Time timeout);
  int descriptor();
  std::uint64_t lost() const;
  std::vector<LostMessage> lost_messages() const;

 private:
  explicit PipeEnd(SharedBlock block);

  MessageChannel& in() const;
  MessageChannel& out() const;

  SharedBlock block_;
  std::shared_ptr<MessageChannel> in_;
  std::shared_ptr<MessageChannel> out_;
};

}  // namespace detail
}  // namespace retinue
