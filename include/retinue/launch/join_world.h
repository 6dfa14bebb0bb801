#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "retinue/ipc/job_group.h"
#include "retinue/launch/world_place.h"
#include "retinue/store/store.h"

namespace retinue {

struct WorldOptions {
  /// Where the ranks meet, if not in `store`.
  /// "env://": the ranks that Retinue started together; other ranks at MASTER_ADDR and MASTER_PORT, which rank 0
  /// serves; those of torchrun, whose agent has a store of its own there, and those of mpirun and srun where nothing is
  /// there, by a file in TMPDIR.
  /// "tcp://host:port": there; rank 0 serves it. "?rank=0&world_size=4" may follow.
  /// "file:///path": by a file that is made here and removed when all have come. One that is there from an earlier job
  /// is refused.
  std::string init_method = "env://";
  /// One that all ranks have, in place of `init_method`. What ranks write there begins with "retinue/".
  std::shared_ptr<Store> store = nullptr;
  int world_size = -1;  ///< -1: as world_place_of_environment() says.
  int rank = -1;        ///< -1: likewise.
  std::chrono::nanoseconds timeout =
      std::chrono::minutes(30);  ///< For all ranks to come; who is missing is known up to 4 s later.
  std::string name = "world";    ///< The same on all ranks.
  /// Ranks that have not come after so long are reported; see StoreMeeting.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  std::string call = "join_world";  ///< What waits, in that report: as "join_world at train.cpp:12".
};

/// What join_world() takes as this process's place: what the options say, or else the job or the environment.
/// Errors: UsageError for options and variables that make no sense.
WorldPlace place_in_world(const WorldOptions& options);

/// The store where the ranks of a world meet: the options' own, else the one that their init method names.
/// Blocking: until rank 0's is there. Threads, errors: as join_world()'s.
std::shared_ptr<Store> open_world_store(const WorldOptions& options);

/// The group of ranks that anybody started, by mpirun, srun, torchrun, or by hand: what Communicator is made of. They
/// are on one host, and get memory as join_group() has it. A rank that Retinue started, and that asks for no
/// other world than that, gets the group of those that were started with it. May be called again, by all ranks, for
/// another group.
///
/// Blocking: until all ranks have come.
/// Threads: called by the main thread. Rank 0 serves "tcp://" and MASTER_ADDR by a thread to the end of its process.
/// Errors: UsageError for options and variables that make no sense, and, on all ranks, for what join_group() refuses;
/// NotOneHost as that has it; TimeoutError, which names the ranks that didn't come; PeerLost where one died that had;
/// Closed when rank 0, which served the others, ended meanwhile.
/// Cost: nine steps of some messages each: 64 ranks take some hundredths of a second after the last has come.
JobGroup join_world(const WorldOptions& options = {});

}  // namespace retinue
