#pragma once

#include <cstdint>
#include <memory>

#include "launch/tasks/task_client.h"

namespace retinue {

/// Calls to one rank of a context.
class CallClient final : public detail::TaskClient {
 public:
  /// Makes the board and tells the rank of it. Errors: SharedMemoryExhausted.
  CallClient(const std::shared_ptr<JobMemory>& memory, std::uint32_t context, int rank);

  std::size_t processes() override { return 1; }
  detail::RunnerNames names() const override { return {"rank", "ranks", ""}; }

  /// No more calls; those that were made are still served.
  void close();
  /// The context is about to be gone: calls that are not done fail.
  void detach();

 private:
  void reap() override;
  void add_watched(std::vector<FutexWait>& words) override;
  std::pair<int, int> runner_of(std::uint32_t owner) const override;
  void on_end(const RankOutcome& end);

  std::uint32_t context_;
  std::uint32_t slot_;
  int rank_;
  bool is_attached_ = true;
};

/// In a context's owner: ranks that no call was made to stop waiting for one.
void refuse_calls(const JobMemory& memory, std::uint32_t slot);

}  // namespace retinue
