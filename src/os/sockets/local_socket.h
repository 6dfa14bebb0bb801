#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"

/// Sockets that processes of this machine find by a name without a file: abstract UNIX sockets of whole messages. The
/// name goes with the last descriptor of the socket, and is seen in the same network namespace only.
namespace retinue {

/// Who is at the other end, as the kernel vouches for it.
struct SocketPeer {
  pid_t pid = 0;  ///< As this process's PID namespace has it; 0: it is not in there.
  uid_t uid = 0;
};

/// Takes the name; neither it nor what accept_local() gives ever blocks. None where the name is taken, or sockets are
/// forbidden.
std::optional<FileDescriptor> listen_local(const std::string& name);

/// The next who connected, if there is one.
std::optional<FileDescriptor> accept_local(int listening);

/// Blocking: until the listener's queue has room, at most `patience`, which also bounds all later operations on the
/// socket. None when nobody listens. Errors: SystemError; TimeoutError.
std::optional<FileDescriptor> connect_local(const std::string& name, std::chrono::milliseconds patience);

/// Errors: SystemError.
SocketPeer peer_of(int socket);

/// Names that somebody listens on and that begin with `prefix`, in order.
std::vector<std::string> listening_names(const std::string& prefix);

}  // namespace retinue
