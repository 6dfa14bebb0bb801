#pragma once

#include <vector>

#include "os/files/file_descriptor.h"
#include "process/guardian/guests.h"
#include "process/observe/job_socket_protocol.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Where `retinue ps` and its like find a job and speak to it: the guardian's listening socket and who came to it.
///
/// It has no name in any file system and is gone with the guardian. Only the job's user and root are let in. A job that
/// cannot have one runs all the same; it is not listed then. Nothing here blocks.
class JobSocket {
 public:
  /// `control_send`: how ranks reach the guardian.
  void open(const JobMemory& memory, int control_send);

  /// What poll() shall watch, and no rank should have.
  std::vector<int> fds() const;

  /// Lets in who waits, and answers who looks. True: somebody asks for the job's stop.
  bool serve(JobMemory& memory);
  /// Gives back what dead guests held. False: not all, so call it again.
  bool reap_guests(JobMemory& memory) { return guests_.reap(memory); }
  /// Whether somebody debugs one of the ranks now.
  bool has_debugger() const;
  /// No rank runs: tells those who wait for that.
  void reply_stopped();

 private:
  struct Visitor {
    FileDescriptor socket;
    bool waits_for_stop = false;
    bool debugs = false;
  };

  void admit(JobMemory& memory, bool& stop);
  void serve_visitors(JobMemory& memory, bool& stop);
  /// False: the visitor has what it came for, or is gone.
  bool serve(Visitor& visitor, JobMemory& memory, bool& stop);
  JobSocketReply admit_guest(const Visitor& visitor, JobMemory& memory, std::vector<FileDescriptor>& descriptors);

  FileDescriptor listening_;
  int control_send_ = -1;
  std::vector<Visitor> visitors_;
  Guests guests_;
};

}  // namespace retinue
