#include "os/sync/fork_safe_mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>
#include <thread>
#include <vector>

namespace {

using retinue::ForkSafeMutex;

TEST(ForkSafeMutex, ExcludesTheThreadsOfAProcess) {
  ForkSafeMutex mutex;
  constexpr int kThreads = 4;
  constexpr int kRounds = 20'000;
  int count = 0;  // Not atomic: only the mutex makes it right.
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::lock_guard lock(mutex);
        ++count;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kRounds);
}

TEST(ForkSafeMutex, IsFreeInAForkOfItsHolder) {
  ForkSafeMutex mutex;
  mutex.lock();
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // With a std::mutex it would wait for ever.
    for (int i = 0; i < 2; ++i) const std::lock_guard lock(mutex);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  mutex.unlock();
  const std::lock_guard lock(mutex);
}

}  // namespace
