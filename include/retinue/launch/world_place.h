#pragma once

#include <optional>
#include <string>

namespace retinue {

/// A world has at most this many.
inline constexpr int kMostRanks = 65'536;

/// A process's place in a world, as whoever started it says.
struct WorldPlace {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank = std::nullopt;  ///< On its host, where that is said.
  std::string told_by = {};                      ///< As "RANK and WORLD_SIZE"; empty where nobody says anything.
};

/// What the environment says. The first that is there counts: RANK, WORLD_SIZE and LOCAL_RANK of torchrun, `retinue
/// run` and people; those of Open MPI's mpirun, of MPICH's and Intel's, and of srun. Rank 0 of one where there are
/// none. Errors: UsageError, which names the variable, for what makes no sense.
WorldPlace world_place_of_environment();

}  // namespace retinue
