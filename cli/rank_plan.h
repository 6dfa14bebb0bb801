#pragma once

#include <map>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "run_options.h"

namespace retinue {

/// What this machine gives to a job.
struct Devices {
  int cpus = 1;
  std::vector<std::string> gpus;

  /// Looks at the machine only where the plan will depend on it.
  static Devices for_plan(const RunOptions& options);
};

/// A rank's place in the job. Ranks are consecutive over the programs; local ranks equal them on one machine.
struct PlannedRank {
  int rank = 0;
  int role_rank = 0;  ///< Among the ranks of its role.
  int role_size = 0;
  const ProgramSection* section = nullptr;  ///< In the options.
};

/// What differs from one attempt to the next.
struct Attempt {
  int number = 0;
  std::string master_port;
};

/// Errors: UsageError for counts that cannot be, and for ranks that flags name but the job does not have.
std::vector<PlannedRank> plan_ranks(const RunOptions& options, const Devices& devices);

/// What torchrun sets, but for RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE and OMP_NUM_THREADS, which every rank
/// gets anyway.
std::map<std::string, std::string> rank_environment(const RunOptions& options, const PlannedRank& rank,
                                                    const Attempt& attempt, const Devices& devices);

/// The program that a rank is: Python put before scripts, --wrap before all, ${local_rank}, ${rank} and ${role_name} in
/// arguments filled in.
std::vector<std::string> rank_command(const RunOptions& options, const PlannedRank& rank);

/// All of it, by rank. Errors: UsageError.
std::vector<Program> rank_programs(const RunOptions& options, const std::vector<PlannedRank>& ranks,
                                   const Attempt& attempt, const Devices& devices);

}  // namespace retinue
