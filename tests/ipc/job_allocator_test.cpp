#include "retinue/ipc/job_allocator.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <numeric>

#include "retinue/base/error.h"
#include "support/ranks.h"

namespace retinue::test {
namespace {

TEST(JobAllocator, PutsElementsIntoJobMemoryAndGivesThemBack) {
  run_ranks(1, [](const JobGroup& group) {
    JobMemory& memory = *group.memory;
    const std::size_t before = memory.allocated_bytes();
    {
      const JobAllocator<float> allocator(group.memory);
      JobVector<float> numbers(1000, 1.5f, allocator);
      EXPECT_TRUE(memory.contains(numbers.data(), numbers.size() * sizeof(float)));
      numbers.resize(100000, 2.5f);
      EXPECT_TRUE(memory.contains(numbers.data(), numbers.size() * sizeof(float)));
      EXPECT_EQ(std::accumulate(numbers.begin(), numbers.end(), 0.0), 1000 * 1.5 + 99000 * 2.5);
      const JobVector<float> copy = numbers;
      EXPECT_NE(copy.data(), numbers.data());
      EXPECT_TRUE(memory.contains(copy.data()));
      const float* const place = numbers.data();
      JobVector<float> moved(allocator);
      moved = std::move(numbers);
      EXPECT_EQ(moved.data(), place);
      std::map<int, double, std::less<>, JobAllocator<std::pair<const int, double>>> map(allocator);
      map[3] = 4;
      EXPECT_TRUE(memory.contains(&map[3]));
      EXPECT_EQ(moved.get_allocator(), JobAllocator<double>(allocator));
    }
    EXPECT_EQ(memory.allocated_bytes(), before);
  });
}

TEST(JobAllocator, RefusesWhatMemoryHasNot) {
  run_ranks(1, [](const JobGroup& group) {
    JobAllocator<double> allocator(group.memory);
    EXPECT_THROW(static_cast<void>(allocator.allocate(std::size_t{1} << 40)), SharedMemoryExhausted);
    EXPECT_THROW(static_cast<void>(allocator.allocate(std::numeric_limits<std::size_t>::max() / 4)),
                 std::bad_array_new_length);
  });
}

TEST(JobAllocator, NeedsAJob) {
  EXPECT_THROW(JobVector<int>(3), UsageError);
}

}  // namespace
}  // namespace retinue::test
