#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "retinue/ipc/job_memory.h"

namespace retinue {

/// Where the time of a rank's steps went, in sum. All of `total_ns` is in one of the others.
struct StepSums {
  std::uint64_t steps = 0;
  std::uint64_t total_ns = 0;
  std::uint64_t data_ns = 0;
  std::uint64_t compute_ns = 0;
  std::uint64_t waiting_ns = 0;
  std::uint64_t communication_ns = 0;
};

constexpr std::uint64_t kProgressMagic = 0x3153534552474f52ull;
constexpr std::size_t kScalarFiles = 4;
constexpr std::size_t kScalarFileBytes = 1000;

/// What a process tells of its training, in a block of job memory. Written by that process alone.
struct ProgressRecord {
  std::atomic<std::uint64_t> magic;   ///< Written last.
  std::atomic<std::uint64_t> writes;  ///< Odd while the sums are written.
  std::atomic<std::uint64_t> sums[6];
  std::atomic<std::uint32_t> file_count;
  char files[kScalarFiles][kScalarFileBytes];  ///< Paths of JSON lines.
};

/// What others see of it.
struct Progress {
  StepSums sums;
  std::vector<std::string> scalar_files;
};

/// Tells the job where this process's time went. Does nothing in a process that has no slot there. Threads: any.
/// Errors: SharedMemoryExhausted at the first call.
void tell_step_sums(JobMemory& memory, const StepSums& sums);

/// Tells the job of this process, if any, of a file with JSON lines, of which it keeps the first kScalarFiles with
/// short paths. Threads: any. Errors: SharedMemoryExhausted.
void tell_scalar_file(const std::string& path);

/// What the process in that slot told; nothing where it told nothing. What was written there may be anything.
std::optional<Progress> read_progress(const JobMemory& memory, std::uint32_t process_slot);

}  // namespace retinue
