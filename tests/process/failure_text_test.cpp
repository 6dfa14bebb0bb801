#include "process/failure/failure_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "os/process/signal_names.h"

namespace retinue {
namespace {

using std::chrono::nanoseconds;

RankOutcome ended(int rank, RankEnd end, int when_ns) {
  RankOutcome outcome;
  outcome.rank = rank;
  outcome.local_rank = rank;
  outcome.pid = 4710 + rank;
  outcome.end = end;
  outcome.ended = nanoseconds(when_ns);
  return outcome;
}

RankOutcome raised(int rank, int when_ns, const std::string& message) {
  RankOutcome outcome = ended(rank, RankEnd::kRaised, when_ns);
  outcome.type = "std::runtime_error";
  outcome.message = message;
  return outcome;
}

RankOutcome peer_lost(int rank, int when_ns) {
  RankOutcome outcome = raised(rank, when_ns, "rank 1 is gone");
  outcome.type = "retinue::PeerLost";
  outcome.consequence = true;
  return outcome;
}

RankOutcome stopped(int rank, int when_ns) {
  RankOutcome outcome = ended(rank, RankEnd::kStopped, when_ns);
  outcome.signal = SIGTERM;
  return outcome;
}

TEST(RootCause, PutsFailuresBeforeConsequencesBeforeTheStopped) {
  EXPECT_EQ(root_cause(std::vector{stopped(0, 1), peer_lost(1, 2), raised(2, 3, "late")}), 2u);
  EXPECT_EQ(root_cause(std::vector{stopped(0, 1), peer_lost(1, 2), ended(2, RankEnd::kReturned, 0)}), 1u);
  EXPECT_EQ(root_cause(std::vector{ended(0, RankEnd::kReturned, 0), stopped(1, 9)}), 1u);
}

TEST(RootCause, IsNotWhatFailedAfterTheJobBeganToEndIt) {
  RankOutcome late = raised(2, 30, "interrupted");
  late.stopped = nanoseconds(25);
  EXPECT_EQ(root_cause(std::vector{stopped(0, 40), peer_lost(1, 20), late}), 1u);
  EXPECT_EQ(ending_text(late), "raised after the job's SIGTERM: std::runtime_error: interrupted");
  late.ended = nanoseconds(24);  // It had failed already when the signal came.
  EXPECT_EQ(root_cause(std::vector{stopped(0, 40), peer_lost(1, 20), late}), 2u);
  EXPECT_EQ(ending_text(late), "raised std::runtime_error: interrupted");
  late.ended = nanoseconds(30);
  EXPECT_EQ(root_cause(std::vector{stopped(0, 10), late}), 1u) << "a failure all the same";
}

TEST(FailureText, TellsOutputAndUseOfTheCause) {
  RankOutcome cause = raised(0, 10, "the loss is nan");
  cause.stack = "#0 train()\n";
  cause.stderr_log = testing::TempDir() + "failure_text_stderr.log";
  std::ofstream(cause.stderr_log) << "first\nepoch 3: loss nan\n";
  cause.use = {.user_cpu = std::chrono::milliseconds(2500),
               .system_cpu = std::chrono::milliseconds(30),
               .peak_memory_bytes = 512u << 20,
               .lifetime = std::chrono::seconds(3)};
  EXPECT_EQ(
      failure_text(std::vector{cause, stopped(1, 20)}),
      "rank 0 (pid 4710) raised std::runtime_error: the loss is nan\n"
      "    #0 train()\n"
      "  last lines of " +
          cause.stderr_log +
          ":\n"
          "    | first\n"
          "    | epoch 3: loss nan\n"
          "  it ran for 3.0 s and used 2.5 s of CPU time (2.5 s user, 30 ms system), 512 MiB of memory at its peak\n"
          "  rank 1 (pid 4711): was stopped by the job (SIGTERM)");
  std::remove(cause.stderr_log.c_str());
}

TEST(FailureText, OfAPythonTracebackKeepsItsEnd) {
  RankOutcome cause = raised(0, 10, "boom");
  cause.stack = "Traceback (most recent call last):\n";
  for (int line = 0; line < 60; ++line) cause.stack += fmt::format("  File {}\n", line);
  cause.stack += "ValueError: boom\n";
  const std::string text = failure_text(std::vector{cause});
  EXPECT_NE(text.find("ValueError: boom"), std::string::npos) << text;
  EXPECT_NE(text.find("... 42 earlier lines\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("File 40"), std::string::npos) << text;
}

TEST(RootCause, IsTheEarliestNanosecondAmongEquals) {
  EXPECT_EQ(root_cause(std::vector{raised(0, 1001, "b"), raised(1, 1000, "a"), raised(2, 1002, "c")}), 1u);
  EXPECT_EQ(root_cause(std::vector{raised(0, 1000, "first"), raised(1, 1000, "second")}), 0u);
}

TEST(FailureText, TellsTheCauseItsStackAndTheOthers) {
  std::vector<RankOutcome> outcomes = {peer_lost(0, 20), raised(1, 10, "the loss is nan"), stopped(2, 30),
                                       stopped(3, 31), stopped(4, 32)};
  outcomes[1].stack = "#0 train() at train.cpp:88 (program+0x10)\n";
  EXPECT_EQ(failure_text(outcomes),
            "rank 1 (pid 4711) raised std::runtime_error: the loss is nan\n"
            "    #0 train() at train.cpp:88 (program+0x10)\n"
            "  rank 0 (pid 4710): raised retinue::PeerLost: rank 1 is gone\n"
            "  ranks 2-4: were stopped by the job (SIGTERM)");
}

TEST(FailureText, FitsOneScreenForSixteenRanksThatAllFailInTheirOwnWay) {
  std::vector<RankOutcome> outcomes;
  for (int rank = 0; rank < 16; ++rank) {
    outcomes.push_back(raised(rank, 100 + rank, fmt::format("rank {} fails\n{}", rank, std::string(5000, 'm'))));
    outcomes.back().stderr_log = testing::TempDir() + "failure_text_long.log";
    outcomes.back().use.lifetime = std::chrono::seconds(1);
    std::ofstream log(outcomes.back().stderr_log);
    for (int line = 0; line < 200; ++line) {
      log << std::string(1000, 'x') << '\n';
      outcomes.back().message += "\nanother line";
      outcomes.back().stack += fmt::format("#{} {}()\n", line, std::string(500, 'f'));
    }
  }
  const std::string text = failure_text(outcomes);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 48);
  for (int rank = 1; rank < 16; ++rank) {
    EXPECT_NE(text.find(fmt::format("rank {} (pid {}): raised", rank, 4710 + rank)), std::string::npos) << text;
  }
  std::remove(outcomes.front().stderr_log.c_str());
}

TEST(FailureText, ListsRanksThatEndedAlikeTogether) {
  std::vector<RankOutcome> outcomes = {raised(0, 1, "cause")};
  for (const int rank : {1, 3, 4, 5, 9}) outcomes.push_back(ended(rank, RankEnd::kReturned, rank));
  EXPECT_NE(failure_text(outcomes).find("ranks 1, 3-5, 9: returned"), std::string::npos) << failure_text(outcomes);
}

TEST(FailureText, DecodesEveryEnd) {
  RankOutcome exited = ended(0, RankEnd::kExited, 1);
  exited.exit_code = 3;
  EXPECT_EQ(ending_text(exited), "exited with code 3");
  RankOutcome killed = ended(0, RankEnd::kSignaled, 1);
  killed.signal = SIGSEGV;
  killed.core_dumped = true;
  killed.message = fault_description(SIGSEGV, 0);
  EXPECT_EQ(ending_text(killed), "was killed by SIGSEGV (core dumped): segmentation fault at address 0x0");
  RankOutcome terminated = ended(0, RankEnd::kSignaled, 1);
  terminated.signal = SIGABRT;
  terminated.type = "std::runtime_error";
  terminated.message = "nobody caught me";
  EXPECT_EQ(ending_text(terminated),
            "was killed by SIGABRT: std::terminate after std::runtime_error: nobody caught me");
  EXPECT_EQ(ending_text(ended(0, RankEnd::kReturned, 1)), "returned");
  EXPECT_EQ(ending_text(ended(0, RankEnd::kRunning, 0)), "is still running");
  EXPECT_EQ(ending_text(ended(0, RankEnd::kNotStarted, 0)), "was not started");
}

TEST(ThrowRootCause, ThrowsByTheKindOfTheCause) {
  try {
    throw_root_cause({peer_lost(0, 1), raised(1, 2, "cause")});
    FAIL() << "nothing was thrown";
  } catch (const ProcessRaisedException& error) {
    EXPECT_EQ(error.rank(), 1);
    EXPECT_EQ(error.pid(), 4711);
    EXPECT_EQ(error.outcome().message, "cause");
    EXPECT_EQ(error.outcomes().size(), 2u);
  }
  RankOutcome killed = ended(0, RankEnd::kSignaled, 1);
  killed.signal = SIGKILL;
  try {
    throw_root_cause({killed});
    FAIL() << "nothing was thrown";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.exit_code(), -SIGKILL);
    EXPECT_EQ(error.signal(), SIGKILL);
    EXPECT_EQ(error.signal_name(), "SIGKILL");
  }
  RankOutcome exited = ended(0, RankEnd::kExited, 1);
  exited.exit_code = 7;
  try {
    throw_root_cause({exited});
    FAIL() << "nothing was thrown";
  } catch (const ProcessExitedException& error) {
    EXPECT_EQ(error.exit_code(), 7);
    EXPECT_EQ(error.signal_name(), "");
  }
}

TEST(FailureText, NamesARankAsItsWorldDoesToo) {
  RankOutcome lost = peer_lost(0, 2);
  lost.world_rank = 2;
  RankOutcome cause = raised(1, 1, "bad row");
  cause.world_rank = 3;
  const std::string text = failure_text(std::vector{lost, cause});
  EXPECT_TRUE(text.starts_with("rank 1 (rank 3 of its world, pid 4711) raised")) << text;
  EXPECT_NE(text.find("\n  rank 0 (rank 2 of its world, pid 4710): raised"), std::string::npos) << text;
  EXPECT_TRUE(failure_text(std::vector{lost, cause}, "worker-1").starts_with("worker-1 (rank 3 of its world, pid"));
}

TEST(ThrowRootCause, IsSilentWhenAllReturned) {
  EXPECT_NO_THROW(throw_root_cause({ended(0, RankEnd::kReturned, 1), ended(1, RankEnd::kReturned, 2)}));
  EXPECT_NO_THROW(throw_root_cause({}));
}

TEST(SignalNames, AreTheUsualOnes) {
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "SIGRTMIN+3");
  EXPECT_EQ(signal_name(99), "signal 99");
  EXPECT_EQ(fault_description(SIGSEGV, 0), "segmentation fault at address 0x0");
  EXPECT_EQ(fault_description(SIGABRT, 0), "aborted");
}

}  // namespace
}  // namespace retinue
