#include "os/sync/robust_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "retinue/base/deadline.h"
#include "retinue/base/error.h"
#include "support/says.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(RobustMutex, IsWaitedForWhileItsHolderProgresses) {
  RobustMutex mutex;
  mutex.init();
  std::atomic<std::uint64_t> progress{0};
  std::atomic<bool> is_held{false};
  std::thread holder([&] {
    const RobustLock lock(mutex, 1min);
    is_held = true;
    is_held.notify_one();
    for (const Deadline end = Deadline::after(3s); !end.passed(); std::this_thread::yield()) ++progress;
  });
  is_held.wait(false);
  const RobustLock lock(mutex, 1s, &progress);
  EXPECT_GT(progress.load(), 0u);
  holder.join();
}

TEST(RobustMutex, NamesAHolderThatStandsStill) {
  RobustMutex mutex;
  mutex.init();
  const std::atomic<std::uint64_t> progress{7};
  const RobustLock lock(mutex, 1min);
  std::thread([&] {
    try {
      (void)mutex.lock(10ms, &progress);
      ADD_FAILURE() << "two hold it";
    } catch (const TimeoutError& error) {
      EXPECT_TRUE(says(error.what(), "has been locked for more than 10 ms by thread ")) << error.what();
    }
  }).join();
}

}  // namespace
}  // namespace retinue::test
