#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "retinue/ipc/job_group.h"

namespace retinue::test {

struct RanksOptions {
  /// When a test that hangs is ended and fails.
  std::chrono::seconds timeout = std::chrono::seconds(120);
  /// Ranks that are expected to be ended by a signal; all others must exit by themselves.
  std::vector<int> killed = {};
  std::size_t memory_bytes = std::size_t{1} << 30;
};

/// Runs `body` in `size` forked processes that form one group, each in its own process slot.
///
/// Failed expectations and exceptions of a rank become failures of the calling test, with the rank's number. Plays the
/// guardian: marks ranks as dead when they end, gives their slots back, and checks that no process and no block is
/// left.
void run_ranks(int size, const std::function<void(const JobGroup&)>& body, const RanksOptions& options = {});

/// The same in a job that the caller has already: the ranks hold what it holds.
void run_ranks_in(const std::shared_ptr<JobMemory>& memory, int size, const std::function<void(const JobGroup&)>& body,
                  const RanksOptions& options = {});

/// The same in threads of one forked process, where ThreadSanitizer sees them all. Each has a process slot all the
/// same.
void run_rank_threads(int size, const std::function<void(const JobGroup&)>& body, const RanksOptions& options = {});

/// True in builds with a sanitizer, where tests do less of the same.
constexpr bool is_sanitized() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return false;
#endif
}

}  // namespace retinue::test
