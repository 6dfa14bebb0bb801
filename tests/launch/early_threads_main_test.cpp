// A program that has threads before its Runtime: its guardian is executed anew, and ranks are too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>

#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

namespace {

/// Starts a thread before main, as some libraries do.
class EarlyThread {
 public:
  EarlyThread() : thread_([this] { done_.wait(false); }) {}
  ~EarlyThread() {
    done_ = true;
    done_.notify_all();
    thread_.join();
  }

 private:
  std::atomic<bool> done_ = false;
  std::thread thread_;
} early_thread;

void note_rank(retinue::RankContext& context, std::uint64_t offset) {
  context.memory()->at<int>(offset)[context.rank()] = context.rank() + 1;
}

void fail(int rank) {
  if (rank == 1) throw std::runtime_error("of an executed rank");
  for (;;) pause();
}

TEST(EarlyThreads, RanksAreExecutedByDefault) {
  const auto& memory = retinue::Runtime::current().memory();
  const retinue::BlockHandle block = memory->allocate(64);
  retinue::spawn<note_rank>({.nprocs = 2}, block.offset);
  EXPECT_EQ(memory->at<int>(block.offset)[0], 1);
  EXPECT_EQ(memory->at<int>(block.offset)[1], 2);
  memory->release(block);
}

TEST(EarlyThreads, FailuresAreReportedAsEver) {
  try {
    retinue::spawn<fail>({.nprocs = 2});
    ADD_FAILURE() << "spawn returned although a rank failed";
  } catch (const retinue::ProcessRaisedException& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.outcome().message, "of an executed rank");
  }
}

TEST(EarlyThreads, ForkserverIsRefusedWithTheReason) {
  try {
    retinue::spawn<fail>({.nprocs = 1, .start_method = retinue::StartMethod::kForkserver});
    ADD_FAILURE() << "a guardian that is no fork of the program forked a function";
  } catch (const retinue::UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("use kSpawn"), std::string::npos) << error.what();
  }
}

}  // namespace

// A main of its own: no other test is to have that thread.
int main(int argc, char** argv) {
  const retinue::Runtime runtime(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
