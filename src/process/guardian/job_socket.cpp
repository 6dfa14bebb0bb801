#include "process/guardian/job_socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "ipc/memory/job_layout.h"
#include "os/sockets/control_socket.h"
#include "os/sockets/local_socket.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// One that says nothing must not keep others out: the oldest makes room.
constexpr std::size_t kMaxVisitors = 16;

bool may_enter(int socket) {
  const uid_t user = peer_of(socket).uid;
  return user == geteuid() || user == 0;
}

void answer(int socket, const JobSocketReply& answer, const std::vector<int>& descriptors) {
  try {
    send_message(socket, &answer, sizeof answer, descriptors);
  } catch (const Error&) {
    // It is gone, or does not read: nothing of ours depends on it.
  }
}

}  // namespace

std::string job_socket_prefix(uid_t user) {
  return fmt::format("retinue/{}/", user);
}

std::string job_socket_name(uid_t user, std::uint64_t job_id) {
  return job_socket_prefix(user) + fmt::format("{:016x}", job_id);
}

void JobSocket::open(const JobMemory& memory, int control_send) {
  control_send_ = control_send;
  if (auto socket = listen_local(job_socket_name(geteuid(), memory.header().job_id))) listening_ = std::move(*socket);
}

std::vector<int> JobSocket::fds() const {
  std::vector<int> fds;
  if (listening_) fds.push_back(listening_.get());
  for (const Visitor& visitor : visitors_) fds.push_back(visitor.socket.get());
  for (const int guest : guests_.fds()) fds.push_back(guest);
  return fds;
}

void JobSocket::admit(JobMemory& memory, bool& stop) {
  if (!listening_) return;
  while (auto socket = accept_local(listening_.get())) {
    if (!may_enter(socket->get())) continue;
    if (visitors_.size() >= kMaxVisitors) serve_visitors(memory, stop);  // Who has asked goes with its answer.
    const auto says_nothing = [](const Visitor& visitor) { return !visitor.waits_for_stop && !visitor.debugs; };
    const auto oldest = std::ranges::find_if(visitors_, says_nothing);
    if (visitors_.size() >= kMaxVisitors && oldest == visitors_.end()) continue;
    if (visitors_.size() >= kMaxVisitors) visitors_.erase(oldest);
    visitors_.push_back({std::move(*socket)});
  }
  // Without a descriptor for who waits, poll() would return at once for ever: a sleeping job must use no CPU.
  if (errno == EMFILE || errno == ENFILE) listening_.reset();
}

bool JobSocket::serve(JobMemory& memory) {
  bool stop = false;
  admit(memory, stop);
  serve_visitors(memory, stop);
  return stop;
}

void JobSocket::serve_visitors(JobMemory& memory, bool& stop) {
  std::erase_if(visitors_, [&](Visitor& visitor) { return !serve(visitor, memory, stop); });
}

bool JobSocket::serve(Visitor& visitor, JobMemory& memory, bool& stop) {
  JobSocketRequest request;
  const ssize_t bytes = recv(visitor.socket.get(), &request, sizeof request, MSG_DONTWAIT | MSG_PEEK);
  if (bytes < 0) return errno == EAGAIN || errno == EINTR;
  if (bytes == 0 || visitor.waits_for_stop || visitor.debugs) return false;
  std::vector<FileDescriptor> descriptors;
  receive_message(visitor.socket.get(), &request, sizeof request, descriptors);
  if (bytes == sizeof request && request.version == kJobSocketVersion) {
    if (request.kind == JobSocketRequest::kLook) {
      answer(visitor.socket.get(), {}, {memory.memfd()});
      return false;
    }
    if (request.kind == JobSocketRequest::kRank) {
      answer(visitor.socket.get(), {}, {memory.memfd(), control_send_});
      return false;
    }
    if (request.kind == JobSocketRequest::kJoin) {
      answer(visitor.socket.get(), admit_guest(visitor, memory, descriptors), {});
      return false;
    }
    if (request.kind == JobSocketRequest::kDebug) {
      answer(visitor.socket.get(), {}, {});
      visitor.debugs = true;
      return true;
    }
    if (request.kind == JobSocketRequest::kStop) {
      stop = true;
      visitor.waits_for_stop = true;
      return true;
    }
  }
  answer(visitor.socket.get(), {.refused = 1}, {});
  return false;
}

JobSocketReply JobSocket::admit_guest(const Visitor& visitor, JobMemory& memory,
                                      std::vector<FileDescriptor>& descriptors) {
  JobSocketReply answer;
  if (descriptors.size() == 1)
    answer.slot = guests_.admit(memory, std::move(descriptors.front()), peer_of(visitor.socket.get()).pid);
  if (answer.slot == 0) answer.refused = 2;
  return answer;
}

bool JobSocket::has_debugger() const {
  return std::ranges::any_of(visitors_, &Visitor::debugs);
}

void JobSocket::reply_stopped() {
  std::erase_if(visitors_, [](const Visitor& visitor) {
    if (visitor.waits_for_stop) answer(visitor.socket.get(), {}, {});
    return visitor.waits_for_stop;
  });
}

}  // namespace retinue
