#include "collective/communicator/message_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "collective/call/overlap.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Which of them is done first nobody knows: one would write what another sends, or has received.
void check_that_none_overlap(std::string_view call, std::span<const P2POp> messages) {
  std::vector<UsedBuffer> buffers;
  for (const P2POp& message : messages) {
    const bool receives = message.kind == P2POp::Kind::kReceive;
    buffers.push_back({.bytes = receives ? ConstBytes(message.buffer) : message.data, .is_written = receives});
  }
  if (const OverlappingPair pair = overlapping_pair(buffers))
    throw UsageError(fmt::format(
        "{}: the buffers of messages {} and {} overlap, and at least one of them receives; use separate buffers", call,
        pair->first, pair->second));
}

}  // namespace

void MessageCalls::check(const P2POp& message) const {
  const bool sends = message.kind == P2POp::Kind::kSend;
  const std::string_view call = sends ? "send" : "recv";
  const bool any = !sends && message.peer == kAnySource;
  if (!any && (message.peer < 0 || message.peer >= session_.size()))
    throw UsageError(fmt::format("{}: rank {} is outside of the group's [0, {})", call, message.peer, session_.size()));
  if (message.tag < 0 && message.tag != detail::kReplyTag && (sends || message.tag != kAnyTag))
    throw UsageError(fmt::format("{}: tag {} is negative", call, message.tag));
}

void MessageCalls::send(ConstBytes data, int destination, int tag, CallSite site) {
  const P2POp message = P2POp::isend(data, destination, tag);
  const std::uint64_t started = log().now();
  prepare(message);
  if (messages_.send_now(data, destination, tag, site)) {
    log().add(message, site, started);
    return engine_.call_back();
  }
  if (destination == session_.rank()) {
    messages_.advance();
    if (!messages_.expects(destination, tag))
      throw UsageError(
          fmt::format("send: rank {} sends {} bytes to itself and has not begun to receive them; use isend or sendrecv",
                      session_.rank(), data.size()));
  }
  SendOperation operation(engine_, data, destination, tag, site);
  operation.recorded = log().begin(message, site, started);
  messages_.start(operation);
  engine_.finish(operation);
}

Received MessageCalls::receive(Bytes buffer, std::vector<std::byte>* grows, int source, int tag, CallSite site) {
  P2POp message = P2POp::irecv(buffer, source, tag);
  const std::uint64_t started = log().now();
  prepare(message);
  if (grows == nullptr)
    if (const auto received = messages_.receive_now(buffer, source, tag)) {
      message.peer = received->source;
      log().add(message, site, started);
      engine_.call_back();
      return *received;
    }
  ReceiveOperation operation(engine_, session_, buffer, source, tag, site);
  operation.grows = grows;
  operation.recorded = log().begin(message, site, started);
  messages_.start(operation);
  if (source == session_.rank() || (source == kAnySource && session_.size() == 1)) {
    messages_.advance();
    if (messages_.withdraw(operation))
      throw UsageError(
          fmt::format("recv: rank {} waits for a message from itself that it has not sent; use irecv or sendrecv",
                      session_.rank()));
  }
  engine_.finish(operation);
  return operation.received;
}

Received MessageCalls::send_and_receive(const P2POp& out, const P2POp& in, CallSite site) {
  const std::uint64_t started = log().now();
  check(in);
  if (overlap(out.data, in.buffer))
    throw UsageError("sendrecv: the two buffers overlap; use separate buffers to send and to receive");
  prepare(out);
  ReceiveOperation receive(engine_, session_, in.buffer, in.peer, in.tag, site);
  SendOperation send(engine_, out.data, out.peer, out.tag, site);
  receive.recorded = log().begin(in, site, started);
  send.recorded = log().begin(out, site, started);
  messages_.start(receive);
  messages_.start(send);
  engine_.wait_until_done(receive, std::chrono::nanoseconds::max());
  engine_.finish(send);
  if (receive.error()) std::rethrow_exception(receive.error());
  return receive.received;
}

std::vector<Request> MessageCalls::start(std::span<const P2POp> messages, CallSite site) {
  for (const P2POp& message : messages) check(message);
  check_that_none_overlap("batch_isend_irecv", messages);
  for (const P2POp& message : messages) prepare(message);
  std::vector<Request> requests;
  for (const P2POp& message : messages) requests.push_back(start_prepared(message, site));
  engine_.call_back();
  return requests;
}

Request MessageCalls::start(const P2POp& message, CallSite site) {
  prepare(message);
  Request request = start_prepared(message, site);
  engine_.call_back();
  return request;
}

void MessageCalls::prepare(const P2POp& message) {
  check(message);
  engine_.check_usable();
  session_.waiter().note_cpu();
  if (message.kind == P2POp::Kind::kSend) messages_.prepare_send(message.peer);
}

Request MessageCalls::start_prepared(const P2POp& message, CallSite site) {
  const auto begin = [&](auto operation) {
    operation->recorded = log().begin(message, site, log().now());
    return engine_.start_prepared(std::move(operation));
  };
  if (message.kind == P2POp::Kind::kSend)
    return begin(std::make_shared<SendOperation>(engine_, message.data, message.peer, message.tag, site));
  return begin(std::make_shared<ReceiveOperation>(engine_, session_, message.buffer, message.peer, message.tag, site));
}

}  // namespace retinue
