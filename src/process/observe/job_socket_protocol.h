#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

/// What is sent over a job's socket: one request, one reply.
namespace retinue {

/// What the names of all jobs' sockets begin with: "retinue/<uid>/"; the job's id in hexadecimal digits follows.
std::string job_socket_prefix(uid_t user);
std::string job_socket_name(uid_t user, std::uint64_t job_id);

/// Changes with the structures below, not with the layout of job memory.
constexpr std::uint32_t kJobSocketVersion = 2;

struct JobSocketRequest {
  enum Kind : std::uint32_t {
    kLook = 0,   ///< Answered at once, with job memory's descriptor.
    kStop = 1,   ///< Stop all ranks by their policies, SIGTERM first; answered when none is left.
    kDebug = 2,  ///< The job's clock stands until this connection ends; answered at once.
    kJoin = 3,   ///< With a pidfd of who asks: it gets a process slot of the job, to its end.
    kRank = 4,   ///< Of a program below a rank: answered at once, with the descriptors that ranks have.
  };
  std::uint32_t version = kJobSocketVersion;
  std::uint32_t kind = kLook;
};

struct JobSocketReply {
  std::uint32_t version = kJobSocketVersion;
  std::uint32_t refused = 0;  ///< 1: the guardian does not know the request's kind or version; 2: no room for a guest.
  std::uint32_t slot = 0;     ///< Of a guest.
};

}  // namespace retinue
