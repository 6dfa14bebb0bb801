#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "collective/kernels/kernels.h"
#include "collective/messages/messages.h"
#include "os/testing/crash_point.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {
namespace {

/// What may lie aside of one sender's before it has to wait for this member.
constexpr std::size_t kEarlyBytes = std::size_t{16} << 20;
constexpr std::size_t kBytesOfEarly = 200;  ///< What each takes besides its data.

std::string source_text(int source) {
  return source == kAnySource ? "any rank" : fmt::format("rank {}", source);
}

void copy(Bytes to, ConstBytes from) {
  if (!from.empty()) copy_bytes(to.data(), from.data(), from.size());
}

}  // namespace

std::string ReceiveOperation::describe() const {
  return fmt::format("waits to receive {} from {} ({}) at {}",
                     grows != nullptr ? "a message" : fmt::format("at most {} bytes", buffer.size()),
                     source_text(source), tag_text(tag), site().text());
}

bool ReceiveOperation::has_space(std::size_t bytes) {
  if (grows != nullptr) {
    grows->resize(bytes);
    buffer = *grows;
  }
  return bytes <= buffer.size();
}

bool ReceiveOperation::is_late(int rank) const {
  return source == kAnySource ? rank != session_.rank() : rank == source;
}

bool ReceiveOperation::is_in_vain_without(int rank) const {
  if (source != kAnySource) return rank == source;
  // One that left may have had nothing to send; one that died may have had.
  if (session_.board().member(rank).state.load(std::memory_order_acquire) != MemberState::kLeft) return true;
  for (int other = 0; other < session_.size(); ++other)
    if (other != session_.rank() && !session_.waiter().is_lost(other)) return false;
  return true;
}

/// Of anybody's message those that are gone are not late.
bool ReceiveOperation::is_reported_late(int rank) const {
  return is_late(rank) && (source != kAnySource || !session_.waiter().is_lost(rank));
}

std::optional<Received> Messages::receive_now(Bytes buffer, int source, int tag) {
  if (source == kAnySource || !posted_.empty() || !early_.empty() || !find_channel_from(source)) return std::nullopt;
  ChannelReceiver& channel = *peer(source).in;
  const Envelope* envelope = channel.peek();
  if (envelope == nullptr || envelope->tag != tag || envelope->bytes > buffer.size() ||
      envelope->kind == EnvelopeKind::kAsk || envelope->kind == EnvelopeKind::kPiece)
    return std::nullopt;
  const Received received{.source = source, .tag = envelope->tag, .bytes = envelope->bytes};
  copy(buffer, channel.data_of(*envelope));
  channel.take();
  ring(source);
  return received;
}

void Messages::start(ReceiveOperation& operation) {
  operation.start();
  ++running_;
  const auto found = std::find_if(early_.begin(), early_.end(),
                                  [&](const Arrived& message) { return operation.takes(message.source, message.tag); });
  if (found == early_.end()) {
    posted_.push_back(&operation);
    return;
  }
  const Arrived message = std::move(*found);
  early_.erase(found);
  peer(message.source).early_bytes -= message.data.size() + kBytesOfEarly;
  give(operation, message, message.data);
}

bool Messages::is_wanted(int source) const {
  const Peer& from = peers_[static_cast<std::size_t>(source)];
  if (!from.arriving.empty()) return true;
  // Those that this member passes over time and again must not pile up without end.
  if (from.early_bytes > kEarlyBytes && (awaited_ == nullptr || !awaited_->is_late(source))) return false;
  return std::any_of(posted_.begin(), posted_.end(), [source](const ReceiveOperation* operation) {
    return operation->source == kAnySource || operation->source == source;
  });
}

void Messages::drain(int rank) {
  ChannelReceiver& channel = *peer(rank).in;
  while (const Envelope* envelope = channel.peek()) {
    accept(rank, *envelope, channel.data_of(*envelope));
    channel.take();
    ring(rank);
    if (!is_wanted(rank)) return;
  }
}

Messages::Arrived Messages::head_of(int source, const Envelope& envelope) {
  Arrived head{.source = source, .tag = envelope.tag, .bytes = envelope.bytes};
  if (envelope.kind == EnvelopeKind::kAsk) {
    head.announced = true;
    head.id = envelope.named.id;
    head.place = envelope.named.place;
  }
  return head;
}

void Messages::accept(int source, const Envelope& envelope, ConstBytes data) {
  if (envelope.kind == EnvelopeKind::kPiece) return accept_piece(source, envelope, data);
  Arrived message = head_of(source, envelope);
  ReceiveOperation* operation = match(source, message.tag);
  // It costs, and is needed only where something may go wrong with the message.
  if (operation == nullptr || message.bytes > operation->buffer.size()) message.site = read_site(envelope.site);
  if (operation == nullptr) return keep(std::move(message), data);
  if (operation->source == kAnySource) first_ = (source + 1) % session_.size();
  give(*operation, message, data);
}

void Messages::keep(Arrived message, ConstBytes data) {
  message.data.assign(data.begin(), data.end());
  const int source = message.source;
  early_.push_back(std::move(message));
  peer(source).early_bytes += data.size() + kBytesOfEarly;
}

bool Messages::expects(int source, int tag) const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [=](const ReceiveOperation* operation) { return operation->takes(source, tag); });
}

ReceiveOperation* Messages::match(int source, int tag) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](const ReceiveOperation* operation) { return operation->takes(source, tag); });
  if (found == posted_.end()) return nullptr;
  ReceiveOperation* operation = *found;
  posted_.erase(found);
  return operation;
}

bool Messages::fits(ReceiveOperation& operation, const Arrived& message) {
  try {
    if (operation.has_space(message.bytes)) return true;
    session_.fail_message(fmt::format("rank {} receives at most {} bytes at {}, but rank {} sends {} ({}) at {}",
                                      session_.rank(), operation.buffer.size(), operation.site().text(), message.source,
                                      message.bytes, tag_text(message.tag), site_text(message.site)));
  } catch (const std::bad_alloc&) {
    session_.fail_message(fmt::format("rank {} has no memory for the {} bytes that rank {} sends ({}) at {}",
                                      session_.rank(), message.bytes, message.source, tag_text(message.tag),
                                      site_text(message.site)));
  }
  end(operation, session_.failure());
  return false;
}

void Messages::give(ReceiveOperation& operation, const Arrived& message, ConstBytes data) {
  if (!fits(operation, message)) return;
  operation.received = {.source = message.source, .tag = message.tag, .bytes = message.bytes};
  operation.recorded.set_peer(message.source);
  operation.source = message.source;
  if (message.announced) return fetch(operation, message);
  copy(operation.buffer, data);
  end(operation);
}

void Messages::fetch(ReceiveOperation& operation, const Arrived& message) {
  Peer& from = peer(message.source);
  if (message.place == kInNoJob) {
    from.arriving.emplace(message.id, &operation);
    from.replies.push_back({.id = message.id, .kind = AnswerKind::kSendPieces, .operation = nullptr});
  } else {
    copy(operation.buffer, {session_.memory().at(message.place), message.bytes});
    RETINUE_CRASH_POINT();
    from.replies.push_back({.id = message.id, .kind = AnswerKind::kTaken, .operation = &operation});
  }
  reply(message.source);
}

void Messages::reply(int rank) {
  Peer& from = peer(rank);
  while (!from.replies.empty()) {
    const Reply& next = from.replies.front();
    // The data of a sender that is gone, or whose send has ended by an error, may have been anything by the time when
    // they were read: the wait finds out why.
    if (next.operation != nullptr && (session_.waiter().is_lost(rank) || session_.is_broken())) return;
    if (!from.in->try_answer(next.id, next.kind)) return;
    ring(rank);
    ReceiveOperation* operation = next.operation;
    from.replies.pop_front();
    if (operation != nullptr) end(*operation);
  }
}

void Messages::accept_piece(int source, const Envelope& envelope, ConstBytes data) {
  auto& arriving = peer(source).arriving;
  const auto found = arriving.find(envelope.named.id);
  ReceiveOperation& operation = *found->second;
  copy(operation.buffer.subspan(operation.taken), data);
  operation.taken += data.size();
  if (operation.taken < operation.received.bytes) return;
  arriving.erase(found);
  end(operation);
}

}  // namespace retinue
