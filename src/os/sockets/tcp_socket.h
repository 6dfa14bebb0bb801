#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "os/files/file_descriptor.h"
#include "retinue/base/deadline.h"

/// TCP over IPv4 and IPv6. All sockets are close-on-exec and never block; each write that meets a closed connection is
/// an error, never a SIGPIPE. Connections send at once (TCP_NODELAY), and a host that vanished ends them after a
/// minute.
namespace retinue {

/// An address and a port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  int port() const;
  /// As "127.0.0.1" or "::1".
  std::string host() const;
  /// As "127.0.0.1:29500" or "[::1]:29500".
  std::string text() const;
};

/// What a name stands for now.
struct Resolved {
  std::vector<SocketAddress> addresses;
  std::string error;        ///< If there are none.
  bool is_unknown = false;  ///< There is no such name, as far as its servers know; else they could not be asked.
};
/// Blocking: while the resolver asks name servers, for seconds if they are silent; numbers never do.
Resolved resolve(const std::string& host, int port);

/// Listens on this address only. Errors: SystemError.
FileDescriptor listen_tcp(const SocketAddress& address);
/// The socket's own end. Errors: SystemError.
SocketAddress local_address(int socket);

/// This host's address, without its port, from which packets to `address` would go. Nothing is sent. Errors:
/// SystemError.
SocketAddress local_address_towards(const SocketAddress& address);

/// The next who connected. None: `error` is EAGAIN where nobody waits; EMFILE and its like where somebody does.
struct Accepted {
  FileDescriptor socket;
  int error = 0;
};
Accepted accept_tcp(int listening);

/// Blocking: until the other end answers. Returns the socket; 0 in `error` with it.
Accepted connect_tcp(const SocketAddress& address, Deadline deadline);

/// What one attempt moved.
struct Transfer {
  std::size_t bytes = 0;
  int error = 0;           ///< EAGAIN: nothing can be moved in this moment.
  bool has_ended = false;  ///< The other end sends no more.
};
Transfer send_some(int socket, std::string_view bytes);
Transfer receive_some(int socket, std::span<char> room);

/// Ends the connection, or the listening, for all processes that hold the socket.
void shut_down(int socket) noexcept;

}  // namespace retinue
