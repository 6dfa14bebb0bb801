// Queues as their options say, and as they arrive in other processes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "ipc/queue/channel_impl.h"
#include "retinue/base/error.h"
#include "retinue/ipc/detail/message_channel.h"

namespace retinue::detail {
namespace {

/// Options of kRedeliver, given for another queue, would say nothing.
void check_redelivery(const QueueOptions& options) {
  const bool redelivers = options.on_consumer_death == OnConsumerDeath::kRedeliver;
  if (!redelivers && options.max_deliveries != QueueOptions::kDefaultDeliveries)
    throw UsageError(
        fmt::format("a queue with max_deliveries = {} must have OnConsumerDeath::kRedeliver", options.max_deliveries));
  if (!options.dead_letters) return;
  if (!redelivers || options.max_deliveries == 0)
    throw UsageError("a queue with dead_letters must have OnConsumerDeath::kRedeliver and max_deliveries");
}

std::uint64_t no_consumer_ns(std::chrono::milliseconds timeout) {
  if (timeout < std::chrono::milliseconds(0))
    throw UsageError(fmt::format("a queue has no_consumer_timeout = {} ms; it must be at least 0", timeout.count()));
  constexpr auto kLongest = std::chrono::hours(24 * 365 * 100);
  return timeout > kLongest ? ~std::uint64_t{0} : static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
}

}  // namespace

BlockHandle MessageChannel::dead_letters_of(const std::shared_ptr<JobMemory>& memory, const QueueOptions& options,
                                            std::uint64_t type, std::size_t space_bytes) {
  if (!options.dead_letters) return {};
  const Impl& to = *options.dead_letters.channel_->impl_;
  if (to.memory != memory) throw UsageError("a queue's dead_letters must be a queue of the same job");
  if (to.ring.header().type != type)
    throw UsageError("a queue's dead_letters must be a queue with the same message type");
  if (to.ring.space_bytes() < space_bytes)
    throw UsageError(
        fmt::format("the slots of a queue's dead_letters hold {} bytes; they must hold {}, as those of the queue "
                    "itself (QueueOptions::message_bytes)",
                    to.ring.space_bytes(), space_bytes));
  return to.block.handle();
}

std::shared_ptr<MessageChannel> MessageChannel::create(const std::shared_ptr<JobMemory>& memory,
                                                       const QueueOptions& options, std::uint64_t type,
                                                       std::size_t space_bytes) {
  constexpr std::size_t kMostSpace = std::size_t{1} << 30;
  if (space_bytes > kMostSpace)
    throw UsageError(fmt::format("a queue has message_bytes = {}; it must be at most {}", space_bytes, kMostSpace));
  check_redelivery(options);
  const RingShape shape{
      .type = type,
      .capacity = options.capacity,
      .space_bytes = static_cast<std::uint32_t>(space_bytes > 8 ? std::max(space_bytes, sizeof(BlockHandle)) : 8),
      .is_joinable = options.joinable ? 1u : 0u,
      .redelivers = options.on_consumer_death == OnConsumerDeath::kRedeliver ? 1u : 0u,
      .max_deliveries = options.max_deliveries,
      .no_consumer_ns = no_consumer_ns(options.no_consumer_timeout),
      .dead_letters = dead_letters_of(memory, options, type, space_bytes)};
  const SharedBlock block = SharedBlock::allocate(memory, MessageRing::bytes_for(shape));
  MessageRing::lay_out(*memory, block.handle(), shape);
  return std::shared_ptr<MessageChannel>(new MessageChannel(std::make_unique<Impl>(block)));
}

std::shared_ptr<MessageChannel> MessageChannel::open(const SharedBlock& block, std::uint64_t type) {
  auto impl = std::make_unique<Impl>(block);
  if (impl->ring.header().type != type)
    throw UsageError("a queue was received with another message type than its own: use the same type on both sides");
  return std::shared_ptr<MessageChannel>(new MessageChannel(std::move(impl)));
}

}  // namespace retinue::detail
