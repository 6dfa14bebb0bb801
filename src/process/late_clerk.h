#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "os/file_descriptor.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The guardian's side of what ranks say of late ones: it takes their texts from the job's desk and has each completed
/// and shown by a clerk, which looks at processes and their stacks in its own time. Nothing here blocks.
class LateClerk {
 public:
  /// From here on texts may be left. A guardian that cannot have the descriptor does without, and ranks show theirs
  /// themselves.
  void open(JobMemory& memory);

  /// Readable when a text was left; -1: never.
  int fd() const { return bell_.get(); }
  /// Starts a clerk with the text that lies on the desk, if there is one and no clerk is at work.
  void serve(const JobMemory& memory);

  bool owns(pid_t pid) const { return clerk_ != 0 && pid == clerk_; }
  void on_exit() { clerk_ = 0; }

 private:
  FileDescriptor bell_;
  pid_t clerk_ = 0;
};

/// `text` with what each process does that a line of it names, and with that one's stack. Looks at each twice.
/// Leaves notes of them on the job's desk. Blocking: half a second, and some seconds for each stack that can't be read.
std::string with_activities(const JobMemory& memory, const std::string& text);

}  // namespace retinue
