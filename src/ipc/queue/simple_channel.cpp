#include "retinue/ipc/detail/simple_channel.h"

#include <algorithm>
#include <utility>

#include "ipc/queue/channel_impl.h"
#include "ipc/queue/message_chain.h"
#include "ipc/sync/sync_wait.h"
#include "retinue/base/error.h"

namespace retinue::detail {

namespace {

/// Even who only tries gives others the time to get through.
constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(5);

}  // namespace

class SimpleChannel::Impl {
 public:
  explicit Impl(const SharedBlock& held) : block(held), memory(held.memory()), chain(*memory, held.handle()) {}

  SharedBlock block;
  std::shared_ptr<JobMemory> memory;
  MessageChain chain;
};

SimpleChannel::SimpleChannel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SimpleChannel::~SimpleChannel() = default;

std::shared_ptr<SimpleChannel> SimpleChannel::create(const std::shared_ptr<JobMemory>& memory, std::uint64_t type) {
  const SharedBlock block = SharedBlock::allocate(memory, MessageChain::block_bytes());
  MessageChain::lay_out(*memory, block.handle(), type);
  return std::shared_ptr<SimpleChannel>(new SimpleChannel(std::make_unique<Impl>(block)));
}

std::shared_ptr<SimpleChannel> SimpleChannel::open(const SharedBlock& block, std::uint64_t type) {
  auto impl = std::make_unique<Impl>(block);
  if (impl->chain.header().type != type)
    throw UsageError(
        "a SimpleQueue was received with another message type than its own: use the same type on both sides");
  return std::shared_ptr<SimpleChannel>(new SimpleChannel(std::move(impl)));
}

const SharedBlock& SimpleChannel::block() const noexcept {
  return impl_->block;
}

void SimpleChannel::announce() {
  retinue::announce(impl_->chain.header().not_empty);
}

void SimpleChannel::put(std::span<const std::byte> message, const std::vector<SharedBlock>& references) {
  throw_if_visited_job_ends(*impl_->memory, "put");
  MessageChain& chain = impl_->chain;
  if (message.size() > MessageChain::kMostBytes || !references.empty()) {
    Payload payload(*impl_->memory, message, references);
    chain.put_payload(payload.handle());
    payload.release();
  } else {
    chain.put(message);
  }
  ring_as_announced(chain.header().not_empty);
}

bool SimpleChannel::take(Time timeout, const std::function<void(std::span<const std::byte>)>& reader) {
  MessageChain& chain = impl_->chain;
  ChainHeader& header = chain.header();
  ChainMessage message(*impl_->memory);
  // Others are through in a moment; who is stopped in there must not keep this one past its time.
  const auto attempt = [&] { return chain.take(message, std::clamp(timeout, kShortest, Time(kRingLookUp))); };
  if (!wait_at_bell(*impl_->memory, header.not_empty, header.spin_budget, timeout, "waiting for a SimpleQueue",
                    attempt))
    return false;
  // The ring that came may have been for several.
  if (chain.may_have_message()) ring(header.not_empty);
  reader(message.bytes());
  return true;
}

bool SimpleChannel::is_empty() const {
  return impl_->chain.is_empty(kRingLookUp);
}

}  // namespace retinue::detail
