#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "ipc/memory/process_slot.h"
#include "process/crash_child.h"
#include "process/failure/failure_text.h"

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

TEST_F(Outcome, OfACrashThatNoHelperSawHasItsAddresses) {
  crash_by_signal(SIGSEGV, 1);
  std::strcpy(slot_->crash.objects[0].path, "/usr/lib/libtrain.so");
  slot_->crash.object_count = 1;
  slot_->crash.frames[0] = {.offset = 0x42, .object = 0};
  slot_->crash.frame_count = 1;
  slot_->crash.stack_phase = 3;
  EXPECT_EQ(dead(SIGSEGV).stack, "#0 libtrain.so+0x42\n");
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

TEST_F(Outcome, OfARankThatTheKernelDidNotLetGo) {
  slot_->stop_signal = SIGKILL;
  slot_->stopped_ns = 100;
  slot_->abandoned_in = 'D';
  const RankOutcome outcome = dead(SIGKILL);
  EXPECT_TRUE(outcome.abandoned);
  EXPECT_TRUE(is_failure(outcome));
  EXPECT_EQ(ending_text(outcome),
            "was abandoned: SIGKILL did not end it in time (state D: uninterruptible sleep in the kernel; see dmesg)");
  RankOutcome cause;
  cause.end = RankEnd::kRaised;
  cause.ended = std::chrono::nanoseconds(2000);
  EXPECT_EQ(root_cause(std::vector<RankOutcome>{outcome, cause}), 1u) << "what made the job kill it came first";
  EXPECT_THROW(throw_root_cause({outcome}), ProcessExitedException);
}

TEST_F(Outcome, TellsWhatWasUsed) {
  slot_->started_ns = 400;
  slot_->use = {.user_cpu_ns = 7, .system_cpu_ns = 8, .peak_memory_bytes = 9};
  const RankOutcome outcome = dead(exited_with(0));
  EXPECT_EQ(outcome.use.user_cpu.count(), 7);
  EXPECT_EQ(outcome.use.system_cpu.count(), 8);
  EXPECT_EQ(outcome.use.peak_memory_bytes, 9u);
  EXPECT_EQ(outcome.use.lifetime.count(), 500);
}

TEST_F(Outcome, OfAKillForLackOfMemory) {
  slot_->killed_for_memory = 1;
  slot_->full_cgroup_limit_bytes = 256u << 20;
  slot_->use.peak_memory_bytes = 250u << 20;
  const RankOutcome in_cgroup = dead(SIGKILL);
  EXPECT_TRUE(in_cgroup.out_of_memory);
  EXPECT_EQ(ending_text(in_cgroup),
            "was killed by the kernel: out of memory (cgroup limit 256 MiB, this rank's peak 250 MiB)");
  slot_->full_cgroup_limit_bytes = 0;
  slot_->use.peak_memory_bytes = 0;
  EXPECT_EQ(ending_text(dead(SIGKILL)), "was killed by the kernel: out of memory (the machine was full)");
  EXPECT_FALSE(dead(SIGTERM).out_of_memory);
}

TEST_F(Outcome, OfARankThatReturnsWhenTheJobStopsIt) {
  slot_->stop_signal = SIGTERM;
  slot_->stopped_ns = 700;
  EXPECT_EQ(ending_text(dead(exited_with(0))), "returned after the job's SIGTERM");
  EXPECT_EQ(ending_text(dead(exited_with(143))), "was stopped by the job and exited with code 143");
}

TEST_F(Outcome, OfAKillThatTheJobDidNotSend) {
  const RankOutcome outcome = dead(SIGKILL | 0x80);
  EXPECT_EQ(outcome.end, RankEnd::kSignaled);
  EXPECT_TRUE(outcome.core_dumped);
  EXPECT_TRUE(contains(outcome.message, "memory"));
}

}  // namespace
}  // namespace retinue
