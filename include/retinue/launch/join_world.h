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
  /// Where the ranks meet if `store` isn't set.
  /// "env://": ranks that Retinue started together use their job. Other ranks meet at MASTER_ADDR and MASTER_PORT,
  /// which rank 0 serves. Ranks of torchrun, whose agent has its own store at that address, and ranks of mpirun and
  /// srun, if nothing is set there, meet by a file in TMPDIR.
  /// "tcp://host:port": the ranks meet at that address, which rank 0 serves. "?rank=0&world_size=4" may follow.
  /// "file:///path": the ranks meet by a file that is made here and removed when all have joined. A file left by an
  /// earlier job is refused.
  std::string init_method = "env://";
  /// A store that all ranks have, used in place of `init_method`. Keys that ranks write there begin with "retinue/".
  std::shared_ptr<Store> store = nullptr;
  int world_size = -1;  ///< -1: as world_place_of_environment() returns it.
  int rank = -1;        ///< -1: the same.
  std::chrono::nanoseconds timeout =
      std::chrono::minutes(30);  ///< For all ranks to join; missing ranks are reported up to 4 s later.
  std::string name = "world";    ///< The same on all ranks.
  /// Ranks that haven't joined after this time are reported; see StoreMeeting.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
  std::string call = "join_world";  ///< Names the waiting call in that report, as "join_world at train.cpp:12".
};

/// Returns the place that join_world() uses for this process: from the options, or else from the job or the
/// environment.
/// Errors: UsageError if options or variables are invalid.
WorldPlace place_in_world(const WorldOptions& options);

/// Returns the store where the ranks of a world meet: the one in the options, or else the one that their init method
/// names.
/// Blocking: until rank 0's store is there. Threads, errors: as join_world().
std::shared_ptr<Store> open_world_store(const WorldOptions& options);

/// Makes the group of ranks that were started by mpirun, srun, torchrun or by hand. A Communicator is made of such a
/// group. The ranks are on one host and get memory as join_group() describes. A rank that Retinue started and that
/// doesn't ask for another world gets the group of the ranks that were started with it. All ranks may call it again for
/// another group.
///
/// Blocking: until all ranks have joined.
/// Threads: called by the main thread. Rank 0 serves "tcp://" and MASTER_ADDR by a thread until its process ends.
/// Errors: UsageError if options or variables are invalid, and, on all ranks, if join_group() refuses the group;
/// NotOneHost as from join_group(); TimeoutError, which names the ranks that didn't join; PeerLost if a rank died after
/// it joined; Closed if rank 0, which served the others, ended meanwhile.
/// Cost: nine steps of some messages each. 64 ranks take some hundredths of a second after the last one has joined.
JobGroup join_world(const WorldOptions& options = {});

}  // namespace retinue
