#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "ipc/memory/ring_owner.h"
#include "launch/task_crash_scenes.h"
#include "launch/tasks/task_client.h"

namespace retinue::test {

/// A client whose workers are processes of the test, one of which may die while it is watched.
class CrashClient final : public detail::TaskClient {
 public:
  static constexpr std::uint32_t kRecords = 8;

  struct Worker {
    std::uint32_t slot;
    pid_t pid;
  };

  CrashClient(const std::shared_ptr<JobMemory>& memory, int retries) : TaskClient(memory, kRecords) {
    retries_ = retries;
  }

  std::size_t processes() override { return 1; }
  detail::RunnerNames names() const override { return {"worker", "workers", ""}; }
  const TaskBoard& board() const { return board_; }

  /// Waits for the worker's end, and does what a pool and the guardian would. True: it came through.
  bool bury(const Worker& worker) {
    const Lock lock(mutex_);
    return bury_locked(worker);
  }
  /// From here on, whoever waits buries it when it dies.
  void watch(const Worker& worker) {
    const Lock lock(mutex_);
    watched_ = worker;
  }
  void kill_watched() {
    const Lock lock(mutex_);
    if (!watched_) return;
    kill(watched_->pid, SIGKILL);
    bury_locked(*std::exchange(watched_, std::nullopt));
  }
  void fail() {
    const Lock lock(mutex_);
    fail_all(std::make_exception_ptr(Closed("it is over")));
    drop_names();
  }

 private:
  bool bury_locked(const Worker& worker) {
    int status = 0;
    EXPECT_EQ(waitpid(worker.pid, &status, 0), worker.pid);
    EXPECT_TRUE(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : status == 0);
    ProcessSlot& slot = process_slot(*memory_, worker.slot);
    slot.state.store(ProcessState::kDead);
    RankOutcome end;
    end.pid = worker.pid;
    end.end = RankEnd::kSignaled;
    end.signal = SIGKILL;
    recover_tasks_of(owner_of(worker.slot, slot), end);
    free_process_slot(*memory_, worker.slot);
    return WIFEXITED(status);
  }
  const ProcessSlot* running() const {
    if (!watched_) return nullptr;
    const ProcessSlot& slot = process_slot(*memory_, watched_->slot);
    return slot.state.load() == ProcessState::kRunning ? &slot : nullptr;
  }

  void reap() override {
    const ProcessSlot* slot = running();
    if (slot != nullptr && slot->life.owner_died()) bury_locked(*std::exchange(watched_, std::nullopt));
  }
  void add_watched(std::vector<FutexWait>& words) override {
    const ProcessSlot* slot = running();
    if (slot == nullptr) return;
    auto& life = slot->life.word();
    words.push_back({&life, life.fetch_or(LifeLock::kWaiters) | LifeLock::kWaiters});
  }
  std::pair<int, int> runner_of(std::uint32_t owner) const override { return {static_cast<int>(owner), 0}; }

  std::optional<Worker> watched_;
};

}  // namespace retinue::test
