#include "os/sockets/local_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <sstream>

#include "retinue/base/error.h"

namespace retinue {
namespace {

struct Address {
  sockaddr_un name{};
  socklen_t bytes = 0;

  explicit Address(const std::string& text) {
    if (text.size() + 1 > sizeof name.sun_path) throw UsageError(fmt::format("the socket name '{}' is too long", text));
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, text.data(), text.size());  // The zero before it makes the name abstract.
    bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&name); }
};

constexpr int kQueue = 16;

void set_patience(int socket, std::chrono::milliseconds patience) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
  const timeval time{seconds.count(), std::chrono::microseconds(patience - seconds).count()};
  for (const int direction : {SO_SNDTIMEO, SO_RCVTIMEO})
    if (setsockopt(socket, SOL_SOCKET, direction, &time, sizeof time) != 0)
      throw SystemError("setting a socket's timeouts", errno);
}

}  // namespace

std::optional<FileDescriptor> listen_local(const std::string& name) {
  const Address address(name);
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd || bind(fd.get(), address.get(), address.bytes) != 0 || listen(fd.get(), kQueue) != 0) return std::nullopt;
  return fd;
}

std::optional<FileDescriptor> accept_local(int listening) {
  FileDescriptor fd(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  return fd ? std::optional(std::move(fd)) : std::nullopt;
}

std::optional<FileDescriptor> connect_local(const std::string& name, std::chrono::milliseconds patience) {
  const Address address(name);
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) throw SystemError("making a socket", errno);
  set_patience(fd.get(), patience);
  while (connect(fd.get(), address.get(), address.bytes) != 0) {
    if (errno == EINTR) continue;
    if (errno == ECONNREFUSED) return std::nullopt;
    if (errno == EAGAIN)
      throw TimeoutError(fmt::format("no answer from the socket {} within {} ms", name, patience.count()));
    throw SystemError(fmt::format("connecting to {}", name), errno);
  }
  return fd;
}

SocketPeer peer_of(int socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    throw SystemError("reading a socket's peer credentials", errno);
  return {peer.pid, peer.uid};
}

std::vector<std::string> listening_names(const std::string& prefix) {
  constexpr unsigned long kAccepts = 0x10000;  // The kernel's __SO_ACCEPTCON.
  std::vector<std::string> names;
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    std::istringstream fields(line);
    std::string address, references, protocol, type, state, inode, name;
    unsigned long flags = 0;
    if (!(fields >> address >> references >> protocol >> std::hex >> flags >> type >> state >> inode >> name)) continue;
    if ((flags & kAccepts) != 0 && name.starts_with("@" + prefix)) names.push_back(name.substr(1));
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace retinue
