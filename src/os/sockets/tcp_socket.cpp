#include "os/sockets/tcp_socket.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "os/files/descriptor_calls.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

// A silent host is given up a minute after it was heard last, whether something is under way to it or not.
constexpr int kQuietSeconds = 20;
constexpr int kProbeSeconds = 10;
constexpr int kProbes = 4;
constexpr int kUnansweredMilliseconds = 60'000;

void set_option(int socket, int level, int option, int value) {
  if (setsockopt(socket, level, option, &value, sizeof value) != 0) throw SystemError("setting up a TCP socket", errno);
}

void set_up_connection(int socket) {
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, kQuietSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnansweredMilliseconds);
}

const sockaddr* generic(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr*>(&address.storage);
}

/// A connection to a free port of this machine may meet itself, since the port that it comes from is chosen at will.
bool meets_itself(int socket, const SocketAddress& peer) {
  const SocketAddress own = local_address(socket);
  return own.bytes == peer.bytes && std::memcmp(&own.storage, &peer.storage, own.bytes) == 0;
}

}  // namespace

int SocketAddress::port() const {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

std::string SocketAddress::host() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(generic(*this), bytes, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::string SocketAddress::text() const {
  if (storage.ss_family == AF_INET6) return fmt::format("[{}]:{}", host(), port());
  return fmt::format("{}:{}", host(), port());
}

Resolved resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return {{}, gai_strerror(code), code == EAI_NONAME};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  Resolved resolved;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    SocketAddress address;
    address.bytes = one->ai_addrlen;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    resolved.addresses.push_back(address);
  }
  return resolved;
}

FileDescriptor listen_tcp(const SocketAddress& address) {
  FileDescriptor fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw SystemError("making a TCP socket", errno);
  // Not for sharing the port: so that connections of an earlier server which still fade away don't keep it.
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (bind(fd.get(), generic(address), address.bytes) != 0 || listen(fd.get(), SOMAXCONN) != 0)
    throw SystemError(fmt::format("listening on {}", address.text()), errno);
  return fd;
}

SocketAddress local_address(int socket) {
  SocketAddress address;
  address.bytes = sizeof address.storage;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0)
    throw SystemError("reading a socket's address", errno);
  return address;
}

SocketAddress local_address_towards(const SocketAddress& address) {
  const FileDescriptor fd(socket(address.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd) throw SystemError("making a UDP socket", errno);
  if (connect(fd.get(), generic(address), address.bytes) != 0)
    throw SystemError(fmt::format("looking for the route to {}", address.text()), errno);
  return local_address(fd.get());
}

Accepted accept_tcp(int listening) {
  for (;;) {
    FileDescriptor fd(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      set_up_connection(fd.get());
      return {std::move(fd), 0};
    }
    // Linux hands out here what went wrong with the connection that is next; it is gone then.
    const bool is_about_the_peer = errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == ENETDOWN ||
                                   errno == ENOPROTOOPT || errno == EHOSTDOWN || errno == EHOSTUNREACH ||
                                   errno == ENETUNREACH || errno == ENONET || errno == EPERM;
    if (!is_about_the_peer) return {{}, errno};
  }
}

Accepted connect_tcp(const SocketAddress& address, Deadline deadline) {
  FileDescriptor fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return {{}, errno};
  set_up_connection(fd.get());
  if (connect(fd.get(), generic(address), address.bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return {{}, errno};
    if (!wait_ready(fd.get(), POLLOUT, deadline)) return {{}, ETIMEDOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return {{}, errno};
    if (error != 0) return {{}, error};
  }
  if (meets_itself(fd.get(), address)) return {{}, ECONNREFUSED};
  return {std::move(fd), 0};
}

Transfer send_some(int socket, std::string_view bytes) {
  for (;;) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) return {static_cast<std::size_t>(sent), 0, false};
    if (errno != EINTR) return {0, errno == EWOULDBLOCK ? EAGAIN : errno, false};
  }
}

Transfer receive_some(int socket, std::span<char> room) {
  for (;;) {
    const ssize_t received = recv(socket, room.data(), room.size(), 0);
    if (received >= 0) return {static_cast<std::size_t>(received), 0, received == 0};
    if (errno != EINTR) return {0, errno == EWOULDBLOCK ? EAGAIN : errno, false};
  }
}

void shut_down(int socket) noexcept {
  shutdown(socket, SHUT_RDWR);
}

}  // namespace retinue
