#pragma once

#include <sys/types.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "os/files/file_descriptor.h"

namespace retinue {

/// A pair of connected sockets that keep messages whole: {to send on, to receive from}. Many processes may hold copies
/// of the first and send at the same time.
std::pair<FileDescriptor, FileDescriptor> make_control_sockets();

/// Whether `fd` may be the first of these: who closed that may have opened something else by its number.
bool is_control_socket(int fd);

/// Throws UsageError: it is not, in the program or a rank.
[[noreturn]] void refuse_closed_socket();

/// Sends one message with copies of descriptors. Blocking: while the receiver's buffer is full.
/// Errors: Closed when the receiver is gone; UsageError when this process has closed `socket`; SystemError.
void send_message(int socket, const void* data, std::size_t bytes, const std::vector<int>& descriptors = {});

/// Takes one message if there is one. Returns its bytes, 0 if there is none. Descriptors arrive close-on-exec.
/// `sender`: of a control socket, the process that sent it, as the kernel knows it; 0: none of this PID namespace.
std::size_t receive_message(int socket, void* data, std::size_t bytes, std::vector<FileDescriptor>& descriptors,
                            pid_t* sender = nullptr);

}  // namespace retinue
