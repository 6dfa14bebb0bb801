#pragma once

#include <optional>
#include <string>

#include "ipc/job_clock.h"
#include "ipc/ring_layout.h"
#include "retinue/ipc/job_memory.h"

/// Which processes ever got from a ring, so that nobody waits for ever until one of them gets again.
namespace retinue {

/// The calling process gets from it, or waits for that.
void note_consumer(const JobMemory& memory, RingHeader& header);

/// How a put learns that it waits for nobody: to be asked from time to time while it does.
class ConsumerWatch {
 public:
  ConsumerWatch(const JobMemory& memory, const RingHeader& header) : memory_(memory), header_(header) {}

  /// Errors: PeerLost when all consumers are gone, and have been for the time that the ring says, and the last of them
  /// failed.
  void look();

 private:
  struct Gone {
    int rank = -1;
    int pid = 0;
    std::string end;  ///< "was killed by SIGKILL"
  };
  /// The last consumer, if all are gone and it failed. What was found once stays found: the table forgets.
  void find_last();
  bool is_any_left() const;

  const JobMemory& memory_;
  const RingHeader& header_;
  std::optional<Gone> last_;
  std::optional<JobDeadline> until_;
};

}  // namespace retinue
