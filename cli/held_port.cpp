#include "held_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// Bound to any address of the family and a port of the kernel's choice; -1 where that fails.
int bound_socket(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  const int off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  bool is_bound = false;
  if (family == AF_INET6) {
    // For version 4 too: rank 0 may listen on either.
    is_bound = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
               bind(fd, reinterpret_cast<sockaddr*>(&six), sizeof six) == 0;
  } else {
    is_bound = bind(fd, reinterpret_cast<sockaddr*>(&four), sizeof four) == 0;
  }
  if (is_bound) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

HeldPort::HeldPort() : fd_(bound_socket(AF_INET6)) {
  if (fd_ < 0) fd_ = bound_socket(AF_INET);
  if (fd_ < 0) throw SystemError("finding a free port for MASTER_PORT (or give one by --master-port)", errno);
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  if (getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    const int error = errno;
    close(fd_);
    throw SystemError("finding a free port for MASTER_PORT", error);
  }
  number_ = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                                : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

HeldPort::~HeldPort() {
  close(fd_);
}

}  // namespace retinue
