#include "os/sockets/bell_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kNameBytes = 5;  // Of the kernel's own choice, behind a zero.

}  // namespace

FileDescriptor make_bell_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

std::uint64_t name_bell_socket(int socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socklen_t bytes = sizeof(sa_family_t);
  if (bind(socket, reinterpret_cast<const sockaddr*>(&address), bytes) != 0)
    throw SystemError("binding a socket to a name", errno);
  bytes = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw SystemError("reading a socket's name", errno);
  std::uint64_t name = 0;
  std::memcpy(&name, address.sun_path + 1, kNameBytes);
  return name;
}

bool ring_bell_socket(int from, std::uint64_t name, char reason) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, &name, kNameBytes);
  constexpr socklen_t kBytes = offsetof(sockaddr_un, sun_path) + 1 + kNameBytes;
  const auto send = [&](int socket) {
    return sendto(socket, &reason, 1, MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                  kBytes) == 1;
  };
  if (send(from) || errno == ECONNREFUSED) return true;
  if (errno != EAGAIN) return false;
  // Either it has bytes enough, or others have not read what `from` sent.
  const FileDescriptor fresh = make_bell_socket();
  return fresh && (send(fresh.get()) || errno == EAGAIN || errno == ECONNREFUSED);
}

bool drain_bell_socket(int socket, char reason) {
  bool is_any = false;
  for (;;) {
    char byte = '\0';
    const ssize_t got = recv(socket, &byte, sizeof byte, MSG_DONTWAIT);
    if (got < 0 && errno != EINTR) return is_any;
    is_any |= got == 1 && byte == reason;
  }
}

}  // namespace retinue
