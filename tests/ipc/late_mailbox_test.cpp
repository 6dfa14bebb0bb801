#include "ipc/memory/late_mailbox.h"

#include <gtest/gtest.h>

#include <string>

#include "ipc/memory/job_layout.h"
#include "support/job_test.h"

namespace retinue::test {
namespace {

class LateMailboxTest : public JobTest {
 protected:
  LateMailbox& mailbox() { return memory_->header().late_mailbox; }
};

TEST_F(LateMailboxTest, HoldsOneTextUntilItIsTaken) {
  EXPECT_FALSE(take_late_text(*memory_));
  EXPECT_TRUE(put_late_text(*memory_, "first\n"));
  EXPECT_FALSE(put_late_text(*memory_, "second\n"));
  EXPECT_EQ(take_late_text(*memory_), "first\n");
  EXPECT_FALSE(take_late_text(*memory_));
  EXPECT_TRUE(put_late_text(*memory_, "second\n"));
  EXPECT_EQ(take_late_text(*memory_), "second\n");
}

TEST_F(LateMailboxTest, CutsWhatIsTooLongBehindALine) {
  std::string text;
  while (text.size() < 2 * sizeof mailbox().text) text += "a line of some words\n";
  EXPECT_TRUE(put_late_text(*memory_, text));
  const auto taken = take_late_text(*memory_);
  ASSERT_TRUE(taken);
  EXPECT_LE(taken->size(), sizeof mailbox().text);
  EXPECT_GT(taken->size(), sizeof mailbox().text - 30);
  EXPECT_TRUE(taken->ends_with("words\n"));
}

TEST_F(LateMailboxTest, IsFreeAgainWhereItsWriterDied) {
  const std::uint32_t dead = reserve_process_slots(*memory_, 1).front();
  mailbox().state = dead * LateMailbox::kStates + LateMailbox::kBeingWritten;
  EXPECT_FALSE(put_late_text(*memory_, "later\n"));
  process_slot(*memory_, dead).state = ProcessState::kDead;
  EXPECT_TRUE(put_late_text(*memory_, "now\n"));
  EXPECT_EQ(take_late_text(*memory_), "now\n");
  free_process_slot(*memory_, dead);
}

TEST_F(LateMailboxTest, IsNoneWithoutAGuardian) {
  EXPECT_FALSE(has_late_mailbox(*memory_));
}

TEST_F(LateMailboxTest, KeepsTheNewestNoteOfEachProcess) {
  EXPECT_FALSE(note_of_process(*memory_, 5));
  note_activity(*memory_, 5, "old\n");
  note_activity(*memory_, 5, "new\n");
  ASSERT_TRUE(note_of_process(*memory_, 5));
  EXPECT_EQ(note_of_process(*memory_, 5)->text, "new\n");
  for (pid_t pid = 100; pid < 100 + static_cast<pid_t>(std::size(mailbox().notes)); ++pid)
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
