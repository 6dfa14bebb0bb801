#pragma once

#include <memory>
#include <string>

#include "retinue/launch/options.h"
#include "retinue/launch/rank_context.h"

namespace retinue {

/// The job that this program is, or is part of. Made in the first line of main, once.
///
/// It makes job memory and the guardian, a small process that starts, watches and ends ranks. In a process that runs a
/// rank's function by StartMethod::kSpawn the constructor does not return: it runs the function and exits.
///
/// Threads: made and destroyed by the main thread.
/// Errors: UsageError for a second Runtime or a bad RETINUE_JOB_MEMORY; SystemError.
class Runtime {
 public:
  Runtime(int argc, char** argv, const RuntimeOptions& options = {});

  /// The program's end: daemonic ranks are stopped; the others have their exit_grace to end by themselves, and are then
  /// stopped by their stop policies. When an exception destroys the Runtime all are stopped at once. Then the guardian
  /// ends. A program that ends without this (exit(), a signal) takes its ranks along at once. In a program that is a
  /// rank itself this holds for what that one started.
  /// Blocking: as long as grace and policies say.
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The Runtime of this process. Errors: UsageError when main has not made one.
  static Runtime& current();
  /// The same, or nullptr.
  static Runtime* current_or_null() noexcept;

  /// Whether this process is a rank: run by spawn or start_processes, or started by `retinue run`.
  bool is_rank() const noexcept;

  /// The job, as `retinue ps` has it and join_job() takes it: its id, unlike any other's, and its name, which
  /// RETINUE_JOB_NAME sets. Blocking: until the job can be found by them, for a moment after its start.
  /// Errors: SystemError when the guardian could not start.
  std::string job_id() const;
  std::string job_name() const;

  /// This process's place in the world it was started in; rank 0 of a world of one in a program that nobody started as
  /// a rank. Errors: UsageError in a program that is no rank of a job where RANK and WORLD_SIZE, or what mpirun or srun
  /// say, make it one of several: join_world() makes the group of those.
  RankContext rank_context() const;

  const std::shared_ptr<JobMemory>& memory() const noexcept;

  class Impl;
  /// For the launch room only.
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
