#pragma once

#include <optional>
#include <string>

namespace retinue {

/// The largest number of ranks in a world.
inline constexpr int kMostRanks = 65'536;

/// A process's place in a world, as its starter gives it.
struct WorldPlace {
  int rank = 0;
  int world_size = 1;
  std::optional<int> local_rank = std::nullopt;  ///< On its host, if given.
  std::string source = {};                       ///< As "RANK and WORLD_SIZE"; empty if nothing gives a place.
};

/// Returns the place that the environment gives. The first variables that are set count: RANK, WORLD_SIZE and
/// LOCAL_RANK, which torchrun, `retinue run` and people set; then the variables of Open MPI's mpirun, of MPICH's and
/// Intel's, and of srun. Without any, it is rank 0 of one. Errors: UsageError, which names the variable, if a value is
/// invalid.
WorldPlace world_place_of_environment();

}  // namespace retinue
