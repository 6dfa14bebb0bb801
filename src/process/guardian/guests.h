#pragma once

#include <cstdint>
#include <vector>

#include "os/files/file_descriptor.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// The guardian's list of guests: processes that are not of the job, but use its memory. They have slots as ranks have,
/// so that what they hold comes back when they die; nobody starts, stops or reports them.
class Guests {
 public:
  /// A slot for the process behind `pidfd`, which must be `pid`. 0: it is not, or there is no room; a guest's slot is
  /// never 0.
  std::uint32_t admit(JobMemory& memory, FileDescriptor pidfd, pid_t pid);

  /// What poll() shall watch.
  std::vector<int> fds() const;
  /// Gives back what the dead held. False: some of it later, since somebody stands still in the block table.
  bool reap(JobMemory& memory);

 private:
  struct Guest {
    FileDescriptor pidfd;
    std::uint32_t slot = 0;
    bool is_dead = false;
  };

  std::vector<Guest> guests_;
};

}  // namespace retinue
