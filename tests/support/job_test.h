#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "retinue/ipc/job_memory.h"

namespace retinue::test {

constexpr std::chrono::seconds kPatience{20};  // A wait that takes longer fails the test.

/// A job of which this process is the program. When the test is over all of its memory must have come back.
class JobTest : public testing::Test {
 protected:
  explicit JobTest(std::size_t bytes = std::size_t{256} << 20) : memory_(JobMemory::create(bytes)) {
    enter_process_slot(*memory_, kProgramSlot);
    // The kernel's list of this thread's robust locks leads into it to the thread's end.
    static std::vector<std::shared_ptr<JobMemory>> kept;
    kept.push_back(memory_);
    JobMemory::set_current(memory_);
  }
  ~JobTest() override {
    EXPECT_EQ(memory_->allocated_bytes(), 0u);
    JobMemory::set_current(nullptr);
  }

  std::shared_ptr<JobMemory> memory_;
};

}  // namespace retinue::test
