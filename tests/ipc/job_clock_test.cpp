#include "ipc/memory/job_clock.h"

#include <gtest/gtest.h>

#include <thread>

#include "retinue/ipc/job_memory.h"

using retinue::job_now;
using retinue::JobDeadline;
using namespace std::chrono_literals;

namespace {

TEST(JobClock, StandsWhileARankIsDebuggedAndGoesOnFromThere) {
  const auto memory = retinue::JobMemory::create(std::size_t{128} << 20);
  retinue::JobHeader& header = memory->header();
  const JobDeadline deadline = JobDeadline::after(header, 100ms);
  retinue::stop_job_clock(header);
  EXPECT_TRUE(retinue::job_clock_stands(header));
  const auto stopped = job_now(header);
  std::this_thread::sleep_for(200ms);  // Twice what the deadline left.
  EXPECT_EQ(job_now(header), stopped);
  const bool had_passed_before = deadline.left(1h) == 0ns;  // On a machine that slept before the clock was stopped.
  EXPECT_EQ(deadline.passed(), had_passed_before);
  retinue::resume_job_clock(header);
  EXPECT_FALSE(retinue::job_clock_stands(header));
  const auto resumed = job_now(header);
  EXPECT_GE(resumed, stopped);
  EXPECT_LT(resumed, retinue::monotonic_ns() * 1ns - 199ms);  // It is behind by what it stood.
  while (!deadline.passed()) std::this_thread::sleep_for(deadline.left(10ms));
  EXPECT_GE(job_now(header), stopped);
}

TEST(JobClock, StandsTwice) {
  const auto memory = retinue::JobMemory::create(std::size_t{128} << 20);
  retinue::JobHeader& header = memory->header();
  const auto begin = retinue::monotonic_ns() * 1ns - job_now(header);
  for (int turn = 0; turn < 2; ++turn) {
    retinue::stop_job_clock(header);
    std::this_thread::sleep_for(20ms);
    retinue::resume_job_clock(header);
  }
  EXPECT_GE(retinue::monotonic_ns() * 1ns - job_now(header), begin + 39ms);
}

TEST(JobClock, DeadlinesBeyondItsRangeNeverPass) {
  const auto memory = retinue::JobMemory::create(std::size_t{128} << 20);
  const JobDeadline never = JobDeadline::after(memory->header(), std::chrono::nanoseconds::max());
  EXPECT_FALSE(never.passed());
  EXPECT_EQ(never.left(3s), 3s);
  EXPECT_TRUE(JobDeadline::after(memory->header(), -1s).passed());
}

}  // namespace
