#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The guardian's side of what ranks say of late ones: it takes their texts from the job's mailbox and has each
/// completed and shown by a helper, which looks at processes and their stacks in its own time. Nothing here blocks.
class LateReporter {
 public:
  /// From here on texts may be left. A guardian that cannot have the descriptor does without, and ranks show theirs
  /// themselves.
  void open(JobMemory& memory);

  /// Readable when a text was left; -1: never.
  int fd() const { return bell_.get(); }
  /// Starts a helper with the text that lies on the mailbox, if there is one and no helper is at work.
  void serve(const JobMemory& memory);

  bool owns(pid_t pid) const { return helper_ != 0 && pid == helper_; }
  void on_exit() { helper_ = 0; }

 private:
  FileDescriptor bell_;
  pid_t helper_ = 0;
};

/// `text` with what each process does that a line of it names, and with that one's stack. Looks at each twice.
/// Leaves notes of them on the job's mailbox. Blocking: half a second, and some seconds for each stack that can't be
/// read.
std::string with_activities(const JobMemory& memory, const std::string& text);

}  // namespace retinue
