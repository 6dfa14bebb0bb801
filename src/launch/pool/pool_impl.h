#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/tasks/task_board.h"
#include "launch/tasks/task_client.h"
#include "retinue/launch/pool.h"
#include "retinue/launch/process_context.h"
#include "retinue/launch/rank_context.h"

namespace retinue {

/// What a worker is given.
struct WorkerStart {
  TaskBoardBlocks board = {};
  std::uint32_t number = 0;
  std::uint64_t most_calls = 0;
  std::optional<detail::EntryKey> initializer = {};
  std::string arguments = {};
  std::vector<SharedBlock> references = {};  ///< Of the arguments.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(board, number, most_calls, initializer, arguments, references);
  }
};

/// A worker's life.
void run_pool_worker(RankContext& context, const WorkerStart& start);

/// A Pool's workers, each a context of its own, so that it ends and is replaced without the others.
class Pool::Impl final : public detail::TaskClient {
 public:
  explicit Impl(const PoolOptions& options);
  ~Impl() override;

  std::size_t processes() override { return target_.load(std::memory_order_relaxed); }
  std::size_t most_calls() const override { return options_.max_tasks_per_child; }
  detail::RunnerNames names() const override;

  void resize(std::size_t processes);
  std::vector<int> pids();
  void close();
  void terminate();
  bool join(Time timeout);
  /// terminate(), and as much waiting as the stop policy needs.
  void end() noexcept;

 private:
  struct Worker {
    ProcessContext context;
    std::uint32_t number;
    std::uint32_t owner;  ///< As owner_of() names it.
    int pid = 0;
    std::uint32_t seen = 0;  ///< Of its context's changes.
    bool has_begun = false;  ///< Its initializer was seen to have returned.
  };
  enum class State { kOpen, kClosing, kEnding };

  void reap() override;
  void add_watched(std::vector<FutexWait>& words) override;
  std::pair<int, int> runner_of(std::uint32_t owner) const override;

  void start_worker();
  std::uint32_t free_number() const;
  StartOptions start_options(std::uint32_t number) const;
  const ContextRecord& record_of(const Worker& worker) const;
  /// 0: it is not forked yet.
  int pid_of(const Worker& worker) const;
  void look_for_guardian();
  void look_at(Worker& worker);
  void on_end(const Worker& worker, RankOutcome end);
  void fail(const Worker& worker, const RankOutcome& end);
  void replace_workers();
  void stop_workers();
  void dismiss(std::size_t count);
  /// Whether workers that end are replaced.
  bool needs_workers() const { return state_ == State::kOpen || (state_ == State::kClosing && under_way() > 0); }

  PoolOptions options_;
  detail::EntryKey entry_;  ///< What workers run.
  std::atomic<std::size_t> target_;
  std::vector<Worker> workers_;
  State state_ = State::kOpen;
  int failed_starts_ = 0;  ///< One after the other.
};

}  // namespace retinue
