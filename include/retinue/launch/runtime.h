#pragma once

#include <memory>
#include <string>

#include "retinue/launch/options.h"
#include "retinue/launch/rank_context.h"

namespace retinue {

/// The job that this program starts or is part of. Make it once, in the first line of main.
///
/// It makes job memory and the guardian, a small process that starts, watches and ends ranks. In a process that runs a
/// rank's function by StartMethod::kSpawn the constructor doesn't return: it runs the function and exits.
///
/// Threads: made and destroyed by the main thread.
/// Errors: UsageError for a second Runtime or an invalid RETINUE_JOB_MEMORY; SystemError.
class Runtime {
 public:
  Runtime(int argc, char** argv, const RuntimeOptions& options = {});

  /// Ends the program's ranks: it stops daemonic ranks at once, gives the others their exit_grace to end by themselves,
  /// and then stops them by their stop policies. If an exception destroys the Runtime, it stops all ranks at once. Then
  /// the guardian ends. If a program ends without this destructor (by exit() or a signal), its ranks end at once with
  /// it. In a program that is a rank itself, this applies to the ranks that it started.
  /// Blocking: as long as grace and policies allow.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Returns the Runtime of this process. Errors: UsageError if main hasn't made one.
  static Runtime& current();
  /// As current(), but returns nullptr if there is none.
  static Runtime* current_or_null() noexcept;

  /// Returns whether this process is a rank: run by spawn or start_processes, or started by `retinue run`.
  bool is_rank() const noexcept;

  /// Return the job's id, which is unique, and its name, which RETINUE_JOB_NAME sets, as `retinue ps` shows and
  /// join_job() accepts them. Blocking: until the job can be found by them, for a moment after its start.
  /// Errors: SystemError if the guardian couldn't start.
  std::string job_id() const;
  std::string job_name() const;

  /// Returns this process's place in the world it was started in: rank 0 of a world of one in a program that wasn't
  /// started as a rank. Errors: UsageError in a program that isn't a rank of a job although RANK and WORLD_SIZE, or the
  /// variables of mpirun or srun, make it one of several: join_world() makes the group of such ranks.
  RankContext rank_context() const;

  const std::shared_ptr<JobMemory>& memory() const noexcept;

  class Impl;
  /// For the launch module only.
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
