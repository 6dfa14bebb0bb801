#pragma once

#include <cstdint>
#include <memory>

#include "os/files/file_descriptor.h"
#include "retinue/ipc/job_memory.h"

/// Who waits in poll() or epoll for something in job memory. A poller has an unnamed datagram socket in its own
/// process; the name that the kernel gave it stands in the job's table of pollers, and whoever changes what the poller
/// waits for sends it a byte, once for each time that it announced that it waits. Nothing of it outlives its process.
namespace retinue {

struct PollerEntry;

/// Threads: one at a time.
class Poller {
 public:
  /// Errors: SystemError without a socket, or when the job has no entry left.
  explicit Poller(const std::shared_ptr<JobMemory>& memory);
  ~Poller();

  /// Readable after ring(), and when the job's guardian was killed.
  int descriptor() const { return epoll_.get(); }
  /// What others need to ring it.
  std::uint64_t ticket() const { return ticket_; }
  /// False in a fork of the process that made it: its socket is that one's.
  bool is_of_this_process() const;

  /// The descriptor is readable no more, until somebody rings. Look once more after this. True: a process has died
  /// since the last call.
  bool wait();
  /// The descriptor becomes readable, if it is not.
  void ring();

 private:
  PollerEntry& entry() const;

  std::shared_ptr<JobMemory> memory_;
  FileDescriptor socket_;
  FileDescriptor guardian_;
  FileDescriptor epoll_;
  std::uint64_t ticket_ = 0;
  int pid_;
};

/// Whether nobody has that poller any more. 0 is no ticket.
bool is_void(const JobMemory& memory, std::uint64_t ticket);
/// Rings the poller if it waits. Never blocks.
bool ring_poller(const JobMemory& memory, std::uint64_t ticket);
/// Rings all, for a process that has died: what it was about to tell nobody else will.
void ring_all_pollers(const JobMemory& memory);

}  // namespace retinue
