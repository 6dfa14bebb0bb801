// The process that shows the ranks' output: killed, stopped, idle.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "ipc/memory/job_layout.h"
#include "launch/log_files.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"

using retinue::RankContext;
using retinue::Std;
using retinue::test::CapturedStream;
using retinue::test::children_called;
using retinue::test::contents_of;
using retinue::test::Folder;
using retinue::test::wait_until;

namespace {

pid_t guardian_pid() {
  return retinue::process_slot(*retinue::Runtime::current().memory(), retinue::kGuardianSlot).pid.load();
}

/// The forwarder of the only context, once it sleeps: it has shown all that there is.
pid_t sleeping_forwarder() {
  pid_t forwarder = 0;
  EXPECT_TRUE(wait_until([&] {
    const std::vector<pid_t> forwarders = children_called(guardian_pid(), "retinue-helper");
    if (forwarders.size() != 1) return false;
    forwarder = forwarders[0];
    return contents_of("/proc/" + std::to_string(forwarder) + "/stat").find(") S ") != std::string::npos;
  }));
  return forwarder;
}

/// A rank that prints a line each time that a file appears.
void print_on_demand(RankContext&, const std::string& folder) {
  for (int i = 0; i < 3; ++i) {
    if (!wait_until([&] { return access((folder + "/go" + std::to_string(i)).c_str(), F_OK) == 0; })) std::abort();
    std::printf("line %d\n", i);
  }
}

class OnDemand : public testing::Test {
 protected:
  void start() {
    ranks_ = retinue::start_processes<print_on_demand>(
        {.name = "talker", .log_dir = logs_.path(), .tee = Std::kOut, .duplicate_stdout_filters = {"line 0", "line 2"}},
        {{0, {go_.path()}}});
  }
  void ask_for(int line) { std::ofstream(go_.path() + "/go" + std::to_string(line)) << "x"; }
  void expect_shown(const std::string& text) {
    EXPECT_TRUE(wait_until([&] { return out_.text() == text; })) << out_.text();
  }

  Folder logs_;
  Folder go_;
  CapturedStream out_{STDOUT_FILENO};
  CapturedStream err_{STDERR_FILENO};
  std::optional<retinue::ProcessContext> ranks_;
};

TEST_F(OnDemand, AKilledForwarderIsReplacedAndThatIsSaidOnce) {
  start();
  ask_for(0);
  expect_shown("[talker0]:line 0\n");
  pid_t forwarder = sleeping_forwarder();
  for (int line = 1; line < 3; ++line) {
    kill(forwarder, SIGKILL);
    EXPECT_TRUE(wait_until([&] { return sleeping_forwarder() != forwarder; }));
    forwarder = sleeping_forwarder();
    ask_for(line);
    if (line == 1) expect_shown("[talker0]:line 0\n[talker0]:line 1\n");
  }
  ranks_->join();
  EXPECT_EQ(out_.text(), "[talker0]:line 0\n[talker0]:line 1\n[talker0]:line 2\n");
  EXPECT_EQ(contents_of(logs_.path() + "/filtered_stdout.log"), "[talker0]:line 0\n[talker0]:line 2\n");
  EXPECT_EQ(
      err_.text(),
      "retinue: the process that shows the output of talker was killed by SIGKILL; the ranks continue and write to " +
          logs_.path() + "\n");
}

TEST_F(OnDemand, AForwarderThatIsAlwaysKilledEndsTheShowOnly) {
  start();
  ask_for(0);
  expect_shown("[talker0]:line 0\n");
  for (int kills = 0; kills < 4; ++kills) {
    const pid_t forwarder = sleeping_forwarder();
    kill(forwarder, SIGKILL);
    EXPECT_TRUE(wait_until([&] {
      const auto forwarders = children_called(guardian_pid(), "retinue-helper");
      return forwarders.empty() ? kills == 3 : forwarders[0] != forwarder;
    }));
  }
  ask_for(1);
  ask_for(2);
  ranks_->join();
  EXPECT_EQ(out_.text(), "[talker0]:line 0\n");
  EXPECT_EQ(contents_of(logs_.path() + "/0/stdout.log"), "line 0\nline 1\nline 2\n");
  EXPECT_NE(err_.text().find("is no longer shown: see " + logs_.path()), std::string::npos) << err_.text();
}

TEST_F(OnDemand, AStoppedForwarderStopsNoRank) {
  start();
  const pid_t forwarder = sleeping_forwarder();
  kill(forwarder, SIGSTOP);
  for (int line = 0; line < 3; ++line) ask_for(line);
  EXPECT_TRUE(wait_until([&] { return contents_of(logs_.path() + "/0/stdout.log") == "line 0\nline 1\nline 2\n"; }));
  EXPECT_EQ(out_.text(), "");
  kill(forwarder, SIGCONT);
  ranks_->join();
  EXPECT_EQ(out_.text(), "[talker0]:line 0\n[talker0]:line 1\n[talker0]:line 2\n");
}

std::string switches_of(pid_t pid) {
  const std::string status = contents_of("/proc/" + std::to_string(pid) + "/status");
  return status.substr(status.find("voluntary_ctxt_switches"));
}

TEST_F(OnDemand, AnIdleJobsForwarderSleeps) {
  start();
  ask_for(0);
  expect_shown("[talker0]:line 0\n");
  const pid_t forwarder = sleeping_forwarder();
  // A change that takes it some milliseconds to get over may still be under way.
  std::string before;
  EXPECT_TRUE(wait_until([&] {
    before = switches_of(forwarder);
    usleep(50'000);
    return before == switches_of(forwarder);
  }));
  usleep(300'000);
  EXPECT_EQ(switches_of(forwarder), before);
  ask_for(1);
  expect_shown("[talker0]:line 0\n[talker0]:line 1\n");
  ask_for(2);
  ranks_->join();
}

TEST_F(OnDemand, AnEmptiedFileIsShownFromItsBeginning) {
  start();
  ask_for(0);
  ask_for(1);
  expect_shown("[talker0]:line 0\n[talker0]:line 1\n");
  ASSERT_EQ(truncate((logs_.path() + "/0/stdout.log").c_str(), 0), 0);
  ask_for(2);
  ranks_->join();
  EXPECT_EQ(contents_of(logs_.path() + "/0/stdout.log"), "line 2\n");
  EXPECT_EQ(out_.text(), "[talker0]:line 0\n[talker0]:line 1\n[talker0]:line 2\n");
}

}  // namespace
