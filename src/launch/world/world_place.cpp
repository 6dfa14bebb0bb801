#include "retinue/launch/world_place.h"

#include <fmt/format.h>

#include <string_view>

#include "base/parse_number.h"
#include "os/files/environment.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// How a launcher calls what it says.
struct Variables {
  const char* rank;
  const char* world_size;
  const char* local_rank;
};

/// srun's size is the step's: in a batch script, which is no rank, there is none.
constexpr Variables kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
};

bool is_set(const char* name) {
  return find_variable(name).has_value();
}

int number_of(const char* name, int least) {
  const std::string text = find_variable(name).value();
  const std::optional<int> number = parse_number<int>(text);
  if (!number || *number < least || *number > kMostRanks)
    throw UsageError(
        fmt::format("the environment's {} is \"{}\", not a number from {} to {}; unset it, or start the "
                    "ranks with `retinue run -n N`, torchrun, mpirun or srun",
                    name, text, least, kMostRanks));
  return *number;
}

}  // namespace

WorldPlace world_place_of_environment() {
  for (const Variables& names : kLaunchers) {
    if (!is_set(names.world_size)) continue;
    WorldPlace place;
    place.world_size = number_of(names.world_size, 1);
    place.source = fmt::format("{} and {}", names.rank, names.world_size);
    if (is_set(names.rank))
      place.rank = number_of(names.rank, 0);
    else if (place.world_size > 1)
      throw UsageError(fmt::format("the environment sets {}={}, but not {}: set {} too, or unset {}", names.world_size,
                                   place.world_size, names.rank, names.rank, names.world_size));
    if (place.rank >= place.world_size)
      throw UsageError(fmt::format("the environment sets {}={} and {}={}: ranks are 0 to {}", names.rank, place.rank,
                                   names.world_size, place.world_size, place.world_size - 1));
    if (is_set(names.local_rank)) place.local_rank = number_of(names.local_rank, 0);
    return place;
  }
  return {};
}

}  // namespace retinue
