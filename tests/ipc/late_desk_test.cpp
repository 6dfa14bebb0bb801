#include "ipc/late_desk.h"

#include <gtest/gtest.h>

#include <string>

#include "ipc/job_layout.h"
#include "support/job_test.h"

namespace retinue::test {
namespace {

class LateDeskTest : public JobTest {
 protected:
  LateDesk& desk() { return memory_->header().late_desk; }
};

TEST_F(LateDeskTest, HoldsOneTextUntilItIsTaken) {
  EXPECT_FALSE(take_from_late_desk(*memory_));
  EXPECT_TRUE(leave_at_late_desk(*memory_, "first\n"));
  EXPECT_FALSE(leave_at_late_desk(*memory_, "second\n"));
  EXPECT_EQ(take_from_late_desk(*memory_), "first\n");
  EXPECT_FALSE(take_from_late_desk(*memory_));
  EXPECT_TRUE(leave_at_late_desk(*memory_, "second\n"));
  EXPECT_EQ(take_from_late_desk(*memory_), "second\n");
}

TEST_F(LateDeskTest, CutsWhatIsTooLongBehindALine) {
  std::string text;
  while (text.size() < 2 * sizeof desk().text) text += "a line of some words\n";
  EXPECT_TRUE(leave_at_late_desk(*memory_, text));
  const auto taken = take_from_late_desk(*memory_);
  ASSERT_TRUE(taken);
  EXPECT_LE(taken->size(), sizeof desk().text);
  EXPECT_GT(taken->size(), sizeof desk().text - 30);
  EXPECT_TRUE(taken->ends_with("words\n"));
}

TEST_F(LateDeskTest, IsFreeAgainWhereItsWriterDied) {
  const std::uint32_t dead = reserve_process_slots(*memory_, 1).front();
  desk().state = dead * LateDesk::kStates + LateDesk::kBeingWritten;
  EXPECT_FALSE(leave_at_late_desk(*memory_, "later\n"));
  process_slot(*memory_, dead).state = ProcessState::kDead;
  EXPECT_TRUE(leave_at_late_desk(*memory_, "now\n"));
  EXPECT_EQ(take_from_late_desk(*memory_), "now\n");
  free_process_slot(*memory_, dead);
}

TEST_F(LateDeskTest, IsNoneWithoutAGuardian) {
  EXPECT_FALSE(has_late_desk(*memory_));
}

TEST_F(LateDeskTest, KeepsTheNewestNoteOfEachProcess) {
  EXPECT_FALSE(note_of_process(*memory_, 5));
  note_activity(*memory_, 5, "old\n");
  note_activity(*memory_, 5, "new\n");
  ASSERT_TRUE(note_of_process(*memory_, 5));
  EXPECT_EQ(note_of_process(*memory_, 5)->text, "new\n");
  for (pid_t pid = 100; pid < 100 + static_cast<pid_t>(std::size(desk().notes)); ++pid)
    note_activity(*memory_, pid, std::to_string(pid));
  EXPECT_FALSE(note_of_process(*memory_, 5));  // The oldest made room.
  EXPECT_EQ(note_of_process(*memory_, 103)->text, "103");
  EXPECT_FALSE(note_of_process(*memory_, 0));
}

TEST(ActivityLine, NamesAProcess) {
  EXPECT_EQ(activity_line(123),
            "\x01"
            "123\n");
  EXPECT_EQ(process_of_activity_line("\x01"
                                     "123"),
            123);
  for (const char* other : {"", "123", "\x01",
                            "\x01"
                            "12x",
                            "\x01-5",
                            "\x01"
                            "99999999999",
                            "  rank 1 waits"})
    EXPECT_FALSE(process_of_activity_line(other)) << other;
}

}  // namespace
}  // namespace retinue::test
