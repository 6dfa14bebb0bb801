#pragma once

#include <cstdint>

#include "os/files/file_descriptor.h"

/// Unnamed datagram sockets by which processes wake each other from poll(): the kernel gives each a name in no file
/// system, which fits a word of shared memory, and nothing of it outlives its process.
namespace retinue {

/// Without a name, to send from. Empty when there is no descriptor left.
FileDescriptor make_bell_socket();

/// Gives the socket a name. Errors: SystemError.
std::uint64_t name_bell_socket(int socket);

/// Makes the socket of that name readable, by a byte that says why. True: it is, or is gone. Never blocks.
bool ring_bell_socket(int from, std::uint64_t name, char reason = '\0');

/// Takes all that was sent: it is readable no more. Whether any of it had that reason.
bool drain_bell_socket(int socket, char reason = '\0');

}  // namespace retinue
