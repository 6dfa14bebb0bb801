#include "retinue/ipc/detail/pipe_end.h"

#include <algorithm>
#include <new>
#include <optional>

#include "retinue/base/error.h"

namespace retinue::detail {
namespace {

/// In an end's block, behind the handles of what it carries: its rings.
struct EndState {
  std::uint64_t magic;
  std::uint64_t type;   ///< Hash of the messages' type.
  BlockHandle partner;  ///< The other end's block, not held.
  BlockHandle in;       ///< None: this end only sends.
  BlockHandle out;

  static constexpr std::uint64_t kMagic = 0x4550495055544552ull;
};

constexpr std::size_t kStateOffset = 2 * sizeof(BlockHandle);
constexpr std::size_t kBlockBytes = kStateOffset + sizeof(EndState);

EndState& state_of(const SharedBlock& block) {
  return *reinterpret_cast<EndState*>(block.data() + kStateOffset);
}

void lay_out(const SharedBlock& end, const SharedBlock& other, const EndState& state) {
  std::vector<BlockHandle> carried;
  for (const BlockHandle& ring : {state.in, state.out})
    if (ring) carried.push_back(ring);
  end.memory()->carry(end.handle(), carried);
  new (&state_of(end)) EndState(state);
  state_of(end).partner = other.handle();
}

std::shared_ptr<MessageChannel> open_channel(const std::shared_ptr<JobMemory>& memory, const BlockHandle& ring,
                                             const EndState& state) {
  if (!ring) return nullptr;
  auto channel = MessageChannel::open(SharedBlock::hold(memory, ring), state.type);
  channel->set_partner(state.partner);
  return channel;
}

/// A message until its reader is through.
class InHand {
 public:
  InHand(MessageChannel& channel, const TakenMessage& taken) : channel_(channel), taken_(taken) {}
  ~InHand() { channel_.finish(taken_); }
  InHand(const InHand&) = delete;
  InHand& operator=(const InHand&) = delete;

 private:
  MessageChannel& channel_;
  const TakenMessage& taken_;
};

}  // namespace

PipeEnd::PipeEnd(SharedBlock block) : block_(std::move(block)) {
  const EndState& state = state_of(block_);
  in_ = open_channel(block_.memory(), state.in, state);
  out_ = open_channel(block_.memory(), state.out, state);
}

/// If this was the last that held it, the other end learns it now; of a death it learns by looking.
PipeEnd::~PipeEnd() {
  try {
    const std::shared_ptr<JobMemory> memory = block_.memory();
    const BlockHandle handle = block_.handle();
    block_ = SharedBlock();
    // A fork made without Retinue's knowledge held nothing: the memory may be another object's by now.
    if (!memory->is_of_this_process() || memory->is_held(handle)) return;
    for (const auto& channel : {in_, out_})
      if (channel) channel->close();
  } catch (const Error&) {
    // Somebody stands still in the block table: the other end looks by itself.
  }
}

std::pair<std::shared_ptr<PipeEnd>, std::shared_ptr<PipeEnd>> PipeEnd::create(const std::shared_ptr<JobMemory>& memory,
                                                                              const PipeOptions& options,
                                                                              std::uint64_t type,
                                                                              std::size_t space_bytes) {
  // An end that nobody holds any more closes the pipe: no time is waited for another consumer.
  const QueueOptions ring{.capacity = options.capacity,
                          .on_consumer_death = options.on_consumer_death,
                          .max_deliveries = options.max_deliveries,
                          .no_consumer_timeout = std::chrono::milliseconds::max()};
  const std::size_t space = std::max(space_bytes, sizeof(BlockHandle));  // No words: messages are looked at first.
  const auto to_first = MessageChannel::create(memory, ring, type, space);
  const auto to_second = options.duplex ? MessageChannel::create(memory, ring, type, space) : nullptr;
  const BlockHandle second_ring = to_second ? to_second->block().handle() : BlockHandle();
  const SharedBlock first = SharedBlock::allocate(memory, kBlockBytes);
  const SharedBlock second = SharedBlock::allocate(memory, kBlockBytes);
  const EndState state{EndState::kMagic, type, {}, to_first->block().handle(), second_ring};
  lay_out(first, second, state);
  lay_out(second, first, {state.magic, type, {}, state.out, state.in});
  return {std::shared_ptr<PipeEnd>(new PipeEnd(first)), std::shared_ptr<PipeEnd>(new PipeEnd(second))};
}

std::shared_ptr<PipeEnd> PipeEnd::open(const SharedBlock& block, std::uint64_t type) {
  if (block.bytes() < kBlockBytes || state_of(block).magic != EndState::kMagic)
    throw UsageError("a block of job memory is not an end of a pipe");
  if (state_of(block).type != type)
    throw UsageError(
        "an end of a pipe was received with another message type than its own: use the same type on both sides");
  return std::shared_ptr<PipeEnd>(new PipeEnd(block));
}

MessageChannel& PipeEnd::in() const {
  if (!in_)
    throw UsageError("this end of the pipe only sends: make the pipe with PipeOptions::duplex, or swap the ends");
  return *in_;
}

MessageChannel& PipeEnd::out() const {
  if (!out_)
    throw UsageError("this end of the pipe only receives: make the pipe with PipeOptions::duplex, or swap the ends");
  return *out_;
}

void PipeEnd::announce() {
  out().announce();
}

bool PipeEnd::send(std::span<const std::byte> message, const std::vector<SharedBlock>& references, Time timeout) {
  MessageChannel& channel = out();
  channel.check_partner();
  try {
    return channel.put(message, references, timeout);
  } catch (const Closed&) {
    throw Closed("send: no process holds the other end of the pipe any more");
  }
}

bool PipeEnd::receive(Time timeout, const std::function<void(std::span<const std::byte>)>& reader) {
  MessageChannel& channel = in();
  TakenMessage taken;
  try {
    if (!channel.take(taken, timeout)) return false;
  } catch (const Closed&) {
    throw Closed("recv: all messages were received, and no process holds the other end of the pipe any more");
  }
  const InHand in_hand(channel, taken);
  reader(taken.bytes);
  return true;
}

bool PipeEnd::poll(Time timeout) {
  return in().wait_for_message(timeout);
}

int PipeEnd::descriptor() {
  return in().descriptor();
}

std::uint64_t PipeEnd::lost() const {
  return in_ ? in_->lost() : 0;
}

std::vector<LostMessage> PipeEnd::lost_messages() const {
  return in_ ? in_->lost_messages() : std::vector<LostMessage>();
}

}  // namespace retinue::detail
