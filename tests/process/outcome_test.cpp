#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "ipc/process_slot.h"
#include "process/crash_child.h"
#include "process/failure_text.h"

namespace retinue {
namespace {

constexpr int exited_with(int code) {
  return code << 8;
}

class Outcome : public testing::Test {
 protected:
  RankOutcome dead(int status) {
    slot_->rank = 5;
    slot_->local_rank = 1;
    slot_->pid = 4711;
    slot_->ended_ns = 900;
    slot_->exit_status = status;
    slot_->state = ProcessState::kDead;
    return outcome_of(*slot_);
  }

  void crash_by_signal(int signal, std::uint32_t phase) {
    slot_->crash.kind = CrashKind::kSignal;
    slot_->crash.signal = signal;
    slot_->crash.time_ns = 800;
    slot_->crash.phase = phase;
  }

  std::unique_ptr<ProcessSlot> slot_ = std::make_unique<ProcessSlot>();
};

TEST_F(Outcome, OfALivingOrUnbornProcess) {
  EXPECT_EQ(outcome_of(*slot_).end, RankEnd::kNotStarted);
  slot_->state = ProcessState::kRunning;
  EXPECT_EQ(outcome_of(*slot_).end, RankEnd::kRunning);
}

TEST_F(Outcome, OfAnExit) {
  EXPECT_EQ(dead(exited_with(0)).end, RankEnd::kReturned);
  const RankOutcome outcome = dead(exited_with(3));
  EXPECT_EQ(outcome.end, RankEnd::kExited);
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_EQ(outcome.rank, 5);
  EXPECT_EQ(outcome.local_rank, 1);
  EXPECT_EQ(outcome.pid, 4711);
  EXPECT_EQ(outcome.ended.count(), 900);
}

TEST_F(Outcome, OfAnExceptionWithItsStack) {
  run_guarded(slot_->crash, [] { throw std::runtime_error("the cause"); });
  std::strcpy(slot_->crash.stack, "#0 train()\n");
  slot_->crash.stack_phase = 2;
  const RankOutcome outcome = dead(exited_with(1));
  EXPECT_EQ(outcome.end, RankEnd::kRaised);
  EXPECT_EQ(outcome.type, "std::runtime_error");
  EXPECT_EQ(outcome.message, "the cause");
  EXPECT_EQ(outcome.stack, "#0 train()\n");
  EXPECT_EQ(static_cast<std::uint64_t>(outcome.ended.count()), slot_->crash.time_ns);
}

TEST_F(Outcome, OfACrashThatWasNotWrittenToItsEnd) {
  crash_by_signal(SIGSEGV, 1);
  const RankOutcome outcome = dead(SIGSEGV);
  EXPECT_EQ(outcome.end, RankEnd::kSignaled);
  EXPECT_EQ(outcome.signal, SIGSEGV);
  EXPECT_EQ(outcome.message, "segmentation fault at address 0x0");
  EXPECT_EQ(outcome.ended.count(), 800);
}

TEST_F(Outcome, OfACrashThatAHandlerOfTheProgramSurvived) {
  crash_by_signal(SIGFPE, 2);
  EXPECT_EQ(dead(exited_with(0)).end, RankEnd::kReturned);
  EXPECT_EQ(dead(SIGKILL).message.find("floating"), std::string::npos);
}

TEST_F(Outcome, OfACrashWhoseHandlerExits) {
  crash_by_signal(SIGSEGV, 2);
  const RankOutcome outcome = dead(exited_with(1));
  EXPECT_EQ(outcome.end, RankEnd::kExited);
  EXPECT_EQ(ending_text(outcome), "exited with code 1 after SIGSEGV: segmentation fault at address 0x0");
}

TEST_F(Outcome, OfARankThatTheJobStopped) {
  slot_->stop_signal = SIGTERM;
  EXPECT_EQ(dead(SIGKILL).end, RankEnd::kSignaled);
  EXPECT_EQ(dead(SIGTERM).end, RankEnd::kStopped);
  EXPECT_EQ(dead(exited_with(143)).end, RankEnd::kStopped);
  EXPECT_EQ(dead(exited_with(0)).end, RankEnd::kReturned);
  crash_by_signal(SIGSEGV, 2);
  EXPECT_EQ(dead(SIGSEGV).end, RankEnd::kSignaled);
}

TEST_F(Outcome, OfAKillThatTheJobDidNotSend) {
  const RankOutcome outcome = dead(SIGKILL | 0x80);
  EXPECT_EQ(outcome.end, RankEnd::kSignaled);
  EXPECT_TRUE(outcome.core_dumped);
  EXPECT_TRUE(contains(outcome.message, "memory"));
}

}  // namespace
}  // namespace retinue
