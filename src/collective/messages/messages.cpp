#include "collective/messages/messages.h"

#include <fmt/format.h>

#include <algorithm>

#include "retinue/ipc/job_memory.h"

namespace retinue {

std::string tag_text(int tag) {
  return tag == kAnyTag ? "any tag" : fmt::format("tag {}", tag);
}

std::string SendOperation::describe() const {
  return fmt::format("waits to send {} bytes to rank {} ({}) at {}", data.size(), destination, tag_text(tag),
                     site().text());
}

Messages::Messages(Session& session, EndedOperations& ended)
    : session_(session), peers_(static_cast<std::size_t>(session.size())), ended_(ended) {}

void Messages::prepare_send(int rank) {
  Peer& to = peer(rank);
  if (!to.out) to.out.emplace(session_.make_channel(rank), Channel::space_bytes(session_.size()));
}

bool Messages::find_channel_from(int rank) {
  Peer& from = peer(rank);
  if (from.in) return true;
  // Pairs with the release in Session::make_channel().
  const std::uint64_t offset = session_.board().channel(rank, session_.rank()).load(std::memory_order_seq_cst);
  if (offset != 0) from.in.emplace(*session_.memory().at<Channel>(offset));
  return offset != 0;
}

bool Messages::goes_at_once(const Peer& to, std::size_t bytes) const {
  return bytes <= std::min<std::uint64_t>(session_.paths().sent_at_once, to.out->most_bytes());
}

bool Messages::send_now(ConstBytes data, int destination, int tag, const CallSite& site) {
  Peer& to = peer(destination);
  if (!to.queued.empty() || !goes_at_once(to, data.size())) return false;
  if (!to.out->try_post({.tag = tag, .bytes = data.size(), .data = data, .site = site})) return false;
  ring(destination);
  return true;
}

void Messages::start(SendOperation& operation) {
  operation.start();
  ++running_;
  peer(operation.destination).queued.push_back(&operation);
  push(operation.destination);
}

void Messages::advance() {
  if (running_ == 0) return;
  try {
    advance_all();
  } catch (const std::exception& error) {
    session_.fail_message(fmt::format("rank {} could not receive a message: {}", session_.rank(), error.what()));
    fail_all(session_.failure());
  }
}

void Messages::advance_all() {
  for (int i = 0; i < session_.size(); ++i) {
    const int rank = (first_ + i) % session_.size();
    Peer& other = peer(rank);
    if (is_wanted(rank) && find_channel_from(rank)) drain(rank);
    if (!other.replies.empty()) reply(rank);
    if (!other.announced.empty()) hear_answers(rank);
    if (!other.queued.empty()) push(rank);
    if (!other.streamed.empty()) stream(rank);
  }
}

void Messages::push(int rank) {
  Peer& to = peer(rank);
  while (!to.queued.empty()) {
    SendOperation& operation = *to.queued.front();
    const bool whole = goes_at_once(to, operation.data.size());
    const bool posted = whole ? to.out->try_post({.tag = operation.tag,
                                                  .bytes = operation.data.size(),
                                                  .data = operation.data,
                                                  .site = operation.site()})
                              : announce(rank, operation);
    if (!posted) return;
    to.queued.pop_front();
    if (whole) end(operation);
    ring(rank);
  }
}

bool Messages::announce(int rank, SendOperation& operation) {
  Peer& to = peer(rank);
  const JobMemory& memory = session_.memory();
  const bool in_job = memory.contains(operation.data.data(), operation.data.size());
  operation.id = to.announcements + 1;
  if (!to.out->try_post({.kind = EnvelopeKind::kAsk,
                         .tag = operation.tag,
                         .bytes = operation.data.size(),
                         .id = operation.id,
                         .place = in_job ? memory.offset_of(operation.data.data()) : kInNoJob,
                         .site = operation.site()}))
    return false;
  ++to.announcements;
  to.announced.push_back(&operation);
  return true;
}

void Messages::hear_answers(int rank) {
  Peer& to = peer(rank);
  while (const auto answer = to.out->next_answer()) {
    const auto found = std::find_if(to.announced.begin(), to.announced.end(),
                                    [&](const SendOperation* operation) { return operation->id == answer->id; });
    SendOperation& operation = **found;
    to.announced.erase(found);
    ring(rank);
    if (answer->kind == AnswerKind::kTaken)
      end(operation);
    else
      to.streamed.push_back(&operation);
  }
}

void Messages::stream(int rank) {
  Peer& to = peer(rank);
  while (!to.streamed.empty()) {
    SendOperation& operation = *to.streamed.front();
    const std::size_t bytes = std::min(to.out->piece_bytes(), operation.data.size() - operation.sent);
    if (!to.out->try_post({.kind = EnvelopeKind::kPiece,
                           .tag = operation.tag,
                           .bytes = bytes,
                           .id = operation.id,
                           .data = operation.data.subspan(operation.sent, bytes),
                           .site = operation.site()}))
      return;
    ring(rank);
    operation.sent += bytes;
    if (operation.sent < operation.data.size()) continue;
    to.streamed.erase(to.streamed.begin());
    end(operation);
  }
}

void Messages::end(Operation& operation, std::exception_ptr error) {
  --running_;
  operation.complete(std::move(error));
  ended_.note(operation);
}

void Messages::fail_all(const std::exception_ptr& error) {
  for (Peer& other : peers_) {
    for (auto* operations : {&other.announced, &other.streamed}) {
      for (SendOperation* operation : *operations) end(*operation, error);
      operations->clear();
    }
    for (SendOperation* operation : other.queued) end(*operation, error);
    other.queued.clear();
    for (const auto& [id, operation] : other.arriving) end(*operation, error);
    other.arriving.clear();
    for (const Reply& reply : other.replies)
      if (reply.operation != nullptr) end(*reply.operation, error);
    other.replies.clear();
  }
  for (ReceiveOperation* operation : posted_) end(*operation, error);
  posted_.clear();
}

bool Messages::withdraw(Operation& operation) {
  const auto found = std::find(posted_.begin(), posted_.end(), &operation);
  if (found == posted_.end()) return false;
  posted_.erase(found);
  end(operation);
  return true;
}

}  // namespace retinue
