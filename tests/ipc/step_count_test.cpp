#include "retinue/ipc/step_count.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ipc/memory/process_table.h"
#include "support/job_test.h"

namespace retinue::test {
namespace {

class StepCount : public JobTest {
 protected:
  std::uint64_t steps() const { return process_slot(*memory_, memory_->own_slot()).steps.load(); }
};

TEST_F(StepCount, IsOfTheProcess) {
  EXPECT_EQ(steps(), 0u);
  for (int i = 0; i < 3; ++i) count_step();
  EXPECT_EQ(steps(), 3u);
}

TEST_F(StepCount, IsNotChangedByForksOfAnybody) {
  const pid_t pid = fork();
  if (pid == 0) {
    count_step();
    _exit(0);
  }
  EXPECT_EQ(waitpid(pid, nullptr, 0), pid);
  EXPECT_EQ(steps(), 0u);
}

TEST(StepCountOfNoJob, IsNothing) {
  count_step();
}

}  // namespace
}  // namespace retinue::test
