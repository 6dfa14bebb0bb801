#include "os/sockets/control_socket.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kMaxDescriptors = 8;

}  // namespace

std::pair<FileDescriptor, FileDescriptor> make_control_sockets() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
    throw SystemError("socketpair to the guardian", errno);
  const int on = 1;
  if (setsockopt(sockets[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
    throw SystemError("setting SO_PASSCRED for the guardian's socket", errno);
  return {FileDescriptor(sockets[0]), FileDescriptor(sockets[1])};
}

bool is_control_socket(int fd) {
  int type = 0;
  socklen_t bytes = sizeof type;
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_SEQPACKET;
}

void refuse_closed_socket() {
  throw UsageError(
      "this process has closed the descriptor of its connection to the job's guardian, for example with closefrom(): "
      "close descriptors before the Runtime is made");
}

void send_message(int socket, const void* data, std::size_t bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int) * descriptors.size());
  }
  while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
      throw Closed("the job's guardian is gone: it was killed, and all ranks with it");
    if (errno == EBADF || errno == ENOTSOCK) refuse_closed_socket();
    throw SystemError("sending to the guardian", errno);
  }
}

std::size_t receive_message(int socket, void* data, std::size_t bytes, std::vector<FileDescriptor>& descriptors,
                            pid_t* sender) {
  iovec part{data, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors) + CMSG_SPACE(sizeof(ucred))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t received = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (received <= 0) return 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET) continue;
    if (header->cmsg_type == SCM_CREDENTIALS && sender != nullptr) {
      ucred credentials{};
      std::memcpy(&credentials, CMSG_DATA(header), sizeof credentials);
      *sender = credentials.pid;
    }
    if (header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) descriptors.clear();  // Some are lost: what is left has no meaning.
  return static_cast<std::size_t>(received);
}

}  // namespace retinue
