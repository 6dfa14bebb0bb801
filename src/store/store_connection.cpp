#include "store/store_connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "os/files/descriptor_calls.h"
#include "os/files/random_bytes.h"
#include "os/sockets/tcp_socket.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::chrono::milliseconds kFirstPause(5);
constexpr std::chrono::milliseconds kLongestPause(250);
// One of several addresses that nobody answers for shall not use up the time of the others.
constexpr std::chrono::seconds kConnectTime(10);
constexpr std::size_t kReadBytes = 64 << 10;

std::string error_text(int error) {
  return fmt::format("{} ({})", strerrorname_np(error), strerrordesc_np(error));
}

/// Errors: Refused.
void send_all(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const Transfer transfer = send_some(socket, bytes);
    if (transfer.error != 0 && transfer.error != EAGAIN) throw Refused{error_text(transfer.error)};
    bytes.remove_prefix(transfer.bytes);
    if (transfer.error == EAGAIN && !wait_ready(socket, POLLOUT, deadline)) throw TimeoutError("");
  }
}

/// Errors: Refused with what came until then in `text`; TimeoutError.
void receive_exactly(int socket, std::size_t bytes, std::string& text, Deadline deadline) {
  std::array<char, kGreetingBytes + kAcceptanceBytes> room;
  while (text.size() < bytes) {
    const Transfer transfer = receive_some(socket, std::span(room).first(bytes - text.size()));
    text.append(room.data(), transfer.bytes);
    if (transfer.has_ended) throw Refused{"it closed the connection"};
    if (transfer.error != 0 && transfer.error != EAGAIN) throw Refused{error_text(transfer.error)};
    // What isn't our store is told from a slow one by its first byte.
    const std::size_t beginning = std::min(text.size(), kStoreMagic.size());
    if (bytes == kGreetingBytes && text.compare(0, beginning, kStoreMagic, 0, beginning) != 0) return;
    if (transfer.error == EAGAIN && !wait_ready(socket, POLLIN, deadline)) throw TimeoutError("");
  }
}

std::string receive_greeting(int socket, const std::string& where, Deadline deadline) {
  std::string greeting;
  try {
    receive_exactly(socket, kGreetingBytes, greeting, deadline);
  } catch (const TimeoutError&) {
    throw Refused{
        "it accepted the connection, but did not greet as a store does: another program listens there, or the "
        "server's process is stopped",
        Refused::Kind::kSilent};
  }
  if (greeting.size() != kGreetingBytes || !greeting.starts_with(kStoreMagic))
    throw UsageError(
        fmt::format("{} is not a Retinue store: another program listens there; correct host and port", where));
  return greeting.substr(kStoreMagic.size());
}

}  // namespace

ServerFacts shake_hands(int socket, const std::string& where, const Token& token, Deadline deadline) {
  const std::string server_nonce = receive_greeting(socket, where, deadline);
  const std::string client_nonce = random_bytes(kNonceBytes);
  std::string acceptance;
  try {
    send_all(socket, make_proof(token.secret, server_nonce, client_nonce), deadline);
    receive_exactly(socket, kAcceptanceBytes, acceptance, deadline);
  } catch (const Refused& refused) {
    throw Refused{refused.why, Refused::Kind::kToken};
  } catch (const TimeoutError&) {
    throw Refused{"it greeted, but then did not answer: the server's process is stopped or overloaded",
                  Refused::Kind::kSilent};
  }
  std::optional<ServerFacts> facts = check_acceptance(token.secret, server_nonce, client_nonce, acceptance);
  if (!facts)
    throw UsageError(
        fmt::format("the store at {} does not know this process's token, which is from {}: the server of "
                    "another job or another user listens there",
                    where, token.source));
  return *std::move(facts);
}

namespace {

bool is_of_this_process(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EACCES || error == EPERM;
}

/// Errors: Refused.
StoreConnection try_address(const SocketAddress& address, const Token& token, Deadline deadline) {
  const Deadline connect_end = Deadline::after(deadline.left(kConnectTime));
  Accepted connected = connect_tcp(address, connect_end);
  if (is_of_this_process(connected.error)) throw SystemError("connecting to " + address.text(), connected.error);
  if (connected.error == ETIMEDOUT) throw Refused{error_text(ETIMEDOUT), Refused::Kind::kSilent};
  if (connected.error != 0) {
    const char* const meaning = connected.error == ECONNREFUSED ? ": nobody listens there" : "";
    throw Refused{error_text(connected.error) + meaning};
  }
  ServerFacts facts = shake_hands(connected.socket.get(), address.text(), token, deadline);
  return {std::move(connected.socket), std::move(facts)};
}

/// Tries again and again, and remembers what the addresses said last.
class Connector {
 public:
  Connector(const StoreAddress& address, const Token& token, Deadline deadline)
      : address_(&address), token_(&token), deadline_(deadline) {}

  /// One round through all addresses.
  std::optional<StoreConnection> try_all() {
    const Resolved resolved = resolve(address_->host, address_->port);
    if (resolved.is_unknown)
      throw UsageError(fmt::format("the store's host '{}' is unknown: {}", address_->host, resolved.error));
    said_ = resolved.error;
    is_silent_ = resolved.addresses.empty();  // The name servers are.
    ++rounds_;
    for (const SocketAddress& address : resolved.addresses) {
      try {
        return try_address(address, *token_, deadline_);
      } catch (const Refused& refused) {
        if (refused.kind == Refused::Kind::kToken) note_token_refusal(address);
        is_silent_ = refused.kind == Refused::Kind::kSilent;
        said_ += fmt::format("{}{}: {}", said_.empty() ? "" : "; ", address.text(), refused.why);
      }
    }
    return std::nullopt;
  }

  /// Whether who was tried last may be there.
  bool is_silent() const { return is_silent_; }
  std::string story() const { return fmt::format("{} (after {} tries)", said_, rounds_); }

 private:
  /// Once may be a server that ended in this moment: then nobody listens at the next try.
  void note_token_refusal(const SocketAddress& address) {
    if (++token_refusals_ < 2) return;
    throw UsageError(
        fmt::format("the store at {} refuses this process's token, which is from {}: give all processes of "
                    "the job the same RETINUE_TOKEN or token file",
                    address.text(), token_->source));
  }

  const StoreAddress* address_;
  const Token* token_;
  Deadline deadline_;
  std::string said_;
  int rounds_ = 0;
  int token_refusals_ = 0;
  bool is_silent_ = false;
};

}  // namespace

std::string StoreAddress::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

StoreConnection connect_to_store(const StoreAddress& address, const Token& token, Deadline deadline,
                                 Patience patience) {
  Connector connector(address, token, deadline);
  auto pause = kFirstPause;
  for (;;) {
    if (std::optional<StoreConnection> connection = connector.try_all()) return *std::move(connection);
    if (patience == Patience::kItWasThere && !connector.is_silent()) throw ConnectionLost{connector.story()};
    if (deadline.passed())
      throw TimeoutError(
          fmt::format("could not connect to the store at {} in time: {}. Has its server been started, and is the "
                      "address correct?",
                      address.text(), connector.story()));
    // Nothing tells when a server begins to listen.
    std::this_thread::sleep_for(deadline.left(pause));
    pause = std::min(2 * pause, kLongestPause);
  }
}

std::optional<Frame> StoreConnection::call(std::string_view request, Deadline deadline) {
  FrameReader reader(std::max<std::uint64_t>(facts_.max_frame_bytes, kReadBytes));
  std::array<char, kReadBytes> room;
  try {
    send_all(socket_.get(), request, deadline);
    for (;;) {
      const Transfer transfer = receive_some(socket_.get(), room);
      if (transfer.has_ended) throw ConnectionLost{"it closed the connection"};
      if (transfer.error != 0 && transfer.error != EAGAIN) throw ConnectionLost{error_text(transfer.error)};
      const std::string_view bytes(room.data(), transfer.bytes);
      if (reader.take(bytes) != bytes.size() || reader.is_too_long()) throw ConnectionLost{"it sent no answer"};
      if (reader.is_complete()) break;
      if (transfer.error == EAGAIN && !wait_ready(socket_.get(), POLLIN, deadline)) return std::nullopt;
    }
  } catch (const Refused& refused) {
    throw ConnectionLost{refused.why};
  } catch (const TimeoutError&) {
    return std::nullopt;
  }
  std::optional<Frame> answer = reader.frame();
  if (!answer) throw ConnectionLost{"it sent no answer"};
  return answer;
}

}  // namespace retinue
