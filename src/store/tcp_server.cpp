#include "store/tcp_server.h"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "os/files/random_bytes.h"
#include "os/process/signal_mask.h"
#include "os/sockets/tcp_socket.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::uint64_t kListener = 0;  // Clients are counted from 1.
constexpr std::size_t kServerReadBytes = 256 << 10;
// In which a member proves itself: where there is no room for another, who has been silent for longer makes some.
constexpr std::chrono::milliseconds kTimeInACrowd(500);
// After it, descriptors are asked for again where there were none.
constexpr std::chrono::milliseconds kDescriptorPause(100);

}  // namespace

TcpServer::TcpServer(FileDescriptor listening, TcpServerOptions options)
    : listening_(std::move(listening)),
      options_(std::move(options)),
      side_{options_.token, {random_bytes(kServerIdBytes), options_.max_frame_bytes}},
      service_(options_.max_frame_bytes),
      room_(kServerReadBytes) {
  poll_.add(listening_.get(), kListener, EventPoll::Interest::kRead);
  const SignalsBlocked blocked;  // A thread is born with its maker's mask: the program's signals are not for this one.
  thread_ = std::thread([this] { run(); });
}

TcpServer::~TcpServer() {
  is_stopped_.store(true, std::memory_order_release);  // Pairs with the loop's look.
  poll_.wake();
  thread_.join();
}

void TcpServer::run() {
  try {
    while (!is_stopped_.load(std::memory_order_acquire)) turn();  // Pairs with the destructor's store.
  } catch (const std::exception&) {
    // The machine has nothing left to serve with. All clients learn it, this process's too, by the end of their
    // connections.
  }
  // Not only closed: a fork of this process may hold them too, and its clients would wait for it.
  shut_down(listening_.get());
  for (const auto& [client, connection] : connections_) shut_down(connection.socket.get());
  connections_.clear();
  listening_.reset();
}

void TcpServer::turn() {
  Deadline end = service_.next_end();
  if (!strangers_.empty() && end_of_oldest_stranger() < end.when()) end = Deadline::at(end_of_oldest_stranger());
  if (!accepts_ && accepts_again_ != Now{} && accepts_again_ < end.when()) end = Deadline::at(accepts_again_);
  const std::vector<std::uint64_t>& ready = poll_.wait(end);
  const Now now = Deadline::Clock::now();
  for (const std::uint64_t number : ready) {
    if (number == kListener)
      accept_all(now);
    else
      serve(number, now);
  }
  drop_late_strangers(now);
  service_.end_waits(now);
  send_answers();
  set_accepting(now);
}

void TcpServer::accept_all(Now now) {
  while (strangers_.size() < options_.max_strangers) {
    try {
      Accepted accepted = accept_tcp(listening_.get());
      if (accepted.error == EAGAIN) return;
      if (accepted.error != 0) {
        accepts_again_ = now + kDescriptorPause;
        return;
      }
      open(std::move(accepted.socket));
    } catch (const std::exception&) {
      // No memory or no watch is left for one more: it is turned away, and tries again.
    }
  }
}

void TcpServer::open(FileDescriptor socket) {
  const Client client = ++last_client_;
  Connection connection{std::move(socket), StoreSession(side_, random_bytes(kNonceBytes))};
  connection.handshake_end = Deadline::after(options_.handshake_timeout).when();
  poll_.add(connection.socket.get(), client, EventPoll::Interest::kRead);
  strangers_.emplace(connection.handshake_end, client);
  Connection& kept = connections_.emplace(client, std::move(connection)).first->second;
  if (!send(client, kept, kept.session.greeting())) drop(client);
}

void TcpServer::set_accepting(Now now) {
  const bool has_descriptors = accepts_again_ == Now{} || accepts_again_ <= now;
  if (has_descriptors) accepts_again_ = {};
  const bool accepts = has_descriptors && strangers_.size() < options_.max_strangers;
  if (accepts == accepts_) return;
  accepts_ = accepts;
  poll_.change(listening_.get(), kListener, accepts ? EventPoll::Interest::kRead : EventPoll::Interest::kNothing);
}

void TcpServer::serve(Client client, Now now) {
  const auto place = connections_.find(client);
  if (place == connections_.end()) return;
  Connection& connection = place->second;
  try {
    if (!connection.output.empty()) {
      if (!flush(client, connection)) drop(client);
      return;
    }
    read(client, connection, now);
  } catch (const std::exception&) {
    drop(client);  // There is no memory for what it wants: it loses its connection, the others are served on.
  }
}

void TcpServer::read(Client client, Connection& connection, Now now) {
  const Transfer transfer = receive_some(connection.socket.get(), room_);
  if (transfer.error == EAGAIN) return;
  if (transfer.error != 0 || transfer.has_ended) return drop(client);
  const bool was_member = connection.session.is_member();
  const std::optional<std::string> reply = connection.session.receive({room_.data(), transfer.bytes});
  if (!reply || !send(client, connection, *reply)) return drop(client);
  if (!was_member && connection.session.is_member()) strangers_.erase({connection.handshake_end, client});
  if (std::optional<Frame> request = connection.session.take_request()) {
    if (!service_.carry_out(client, *std::move(request), now)) return drop(client);
    send_answers();
  }
}

void TcpServer::send_answers() {
  for (const auto& [client, bytes] : std::exchange(service_.answers(), {})) {
    const auto place = connections_.find(client);
    if (place == connections_.end()) continue;
    place->second.session.answered();
    try {
      if (!send(client, place->second, bytes)) drop(client);
    } catch (const std::exception&) {
      drop(client);  // No memory for its answer.
    }
  }
}

bool TcpServer::send(Client client, Connection& connection, std::string_view bytes) {
  if (bytes.empty()) return true;
  connection.output += bytes;
  return flush(client, connection);
}

bool TcpServer::flush(Client client, Connection& connection) {
  while (connection.sent < connection.output.size()) {
    const Transfer transfer =
        send_some(connection.socket.get(), std::string_view(connection.output).substr(connection.sent));
    connection.sent += transfer.bytes;
    if (transfer.error == EAGAIN) {
      // Nothing more is read of it meanwhile, so that it can't make this process hold more than one answer.
      set_interest(client, connection, EventPoll::Interest::kWrite);
      return true;
    }
    if (transfer.error != 0) return false;
  }
  connection.output = {};
  connection.sent = 0;
  set_interest(client, connection, EventPoll::Interest::kRead);
  return true;
}

void TcpServer::set_interest(Client client, Connection& connection, EventPoll::Interest interest) {
  if (connection.interest == interest) return;
  poll_.change(connection.socket.get(), client, interest);
  connection.interest = interest;
}

void TcpServer::drop(Client client) {
  const auto place = connections_.find(client);
  if (place == connections_.end()) return;
  service_.forget(client);
  strangers_.erase({place->second.handshake_end, client});
  poll_.remove(place->second.socket.get());
  shut_down(place->second.socket.get());
  connections_.erase(place);
  accepts_again_ = {};  // A descriptor is free.
}

TcpServer::Now TcpServer::end_of_oldest_stranger() const {
  const Now end = strangers_.begin()->first;
  const bool has_room = strangers_.size() < options_.max_strangers && accepts_again_ == Now{};
  if (has_room) return end;
  return std::min(end, end - options_.handshake_timeout + kTimeInACrowd);
}

void TcpServer::drop_late_strangers(Now now) {
  while (!strangers_.empty() && end_of_oldest_stranger() <= now) drop(strangers_.begin()->second);
}

}  // namespace retinue
