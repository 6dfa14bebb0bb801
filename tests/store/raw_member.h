#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "os/files/descriptor_calls.h"
#include "os/files/file_descriptor.h"
#include "os/files/random_bytes.h"
#include "os/sockets/tcp_socket.h"
#include "store/frame.h"
#include "store/handshake.h"

namespace retinue::test {

inline constexpr std::chrono::seconds kRawPatience(20);  // What takes longer fails the test.

/// Somebody at a store's port, who says what a test wants.
class RawPeer {
 public:
  explicit RawPeer(int port)
      : socket_(connect_tcp(resolve("127.0.0.1", port).addresses.at(0), Deadline::after(kRawPatience)).socket) {
    if (!socket_) throw std::runtime_error("nobody listens");
  }
  explicit RawPeer(FileDescriptor socket) : socket_(std::move(socket)) {}

  /// False: the other end is gone.
  bool say(std::string_view bytes) {
    while (!bytes.empty()) {
      const Transfer transfer = send_some(socket_.get(), bytes);
      if (transfer.error != 0 && transfer.error != EAGAIN) return false;
      bytes.remove_prefix(transfer.bytes);
      if (transfer.error == EAGAIN && !wait_ready(socket_.get(), POLLOUT, Deadline::after(kRawPatience))) return false;
    }
    return true;
  }
  /// At most so many bytes; fewer at the end of the connection.
  std::string hear(std::size_t count) {
    std::string text;
    std::array<char, 4096> room;
    while (text.size() < count) {
      const Transfer transfer =
          receive_some(socket_.get(), std::span(room).first(std::min(room.size(), count - text.size())));
      text.append(room.data(), transfer.bytes);
      if (transfer.has_ended || (transfer.error != 0 && transfer.error != EAGAIN)) return text;
      if (transfer.error == EAGAIN && !wait_ready(socket_.get(), POLLIN, Deadline::after(kRawPatience)))
        throw std::runtime_error("silence");
    }
    return text;
  }
  int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
};

/// Somebody who knows the token.
class RawMember : public RawPeer {
 public:
  RawMember(int port, std::string_view token) : RawPeer(port) {
    const std::string nonce = hear(kGreetingBytes).substr(kStoreMagic.size());
    say(make_proof(token, nonce, random_bytes(kNonceBytes)));
    if (hear(kAcceptanceBytes).size() != kAcceptanceBytes) throw std::runtime_error("not accepted");
  }

  static std::string set_request(const std::string& key, const std::string& value) {
    return encode({static_cast<std::uint8_t>(Request::kSet), 0, {key, value}});
  }
  static std::string get_request(const std::string& key) {
    return encode({static_cast<std::uint8_t>(Request::kGet), -1, {key}});
  }
  std::optional<Frame> hear_answer() {
    FrameReader reader(~std::uint64_t{0});
    while (!reader.is_complete()) {
      const std::string byte = hear(1);
      if (byte.empty()) return std::nullopt;
      reader.take(byte);
    }
    return reader.frame();
  }
};

}  // namespace retinue::test
