#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/watched_job.h"
#include "support/paths.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::shell_run;
using retinue::test::StartedProgram;
using retinue::test::wait_until;

namespace {

/// A calling_program of three ranks, the second of which comes late to each all_reduce.
class SteppingJob {
 public:
  SteppingJob() : program_("calling_program", {"steps", "3"}) {
    EXPECT_TRUE(wait_until([&] {
      const auto job = retinue::test::listed_job("calling_program-" + pid());
      return !job.is_null() && job["ranks"].size() == 3 && job["ranks"][0]["call"].is_object();
    }));
  }
  ~SteppingJob() {
    end();
    program_.wait_for_all();
  }
  void end() {
    if (!std::exchange(is_ended_, true)) kill(program_.pid(), SIGKILL);
  }
  std::string pid() const { return std::to_string(program_.pid()); }

 private:
  StartedProgram program_;
  bool is_ended_ = false;
};

/// `retinue top` on a terminal of its own.
class OnATerminal {
 public:
  explicit OnATerminal(const std::string& job) {
    const std::vector<std::string> words = {"retinue", "top", "--interval", "0.1", job};
    winsize size{};
    size.ws_row = 10;
    size.ws_col = 80;
    EXPECT_EQ(openpty(&terminal_, &other_end_, nullptr, nullptr, &size), 0);
    tcgetattr(other_end_, &before_);
    pid_ = fork();
    if (pid_ == 0) {
      login_tty(other_end_);
      std::vector<char*> argv;
      for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
      argv.push_back(nullptr);
      execv(RETINUE_BIN_DIR "/retinue", argv.data());
      _exit(127);
    }
  }
  ~OnATerminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(terminal_);
    close(other_end_);
  }

  /// Reads on until `text` has come.
  bool shows(const std::string& text) {
    output_.clear();
    return wait_until([&] {
      read_some();
      return contains(output_, text);
    });
  }
  void type(const std::string& keys) const { ASSERT_EQ(write(terminal_, keys.data(), keys.size()), std::ssize(keys)); }
  void resize(unsigned short rows, unsigned short columns) const {
    const winsize size{rows, columns, 0, 0};
    ioctl(terminal_, TIOCSWINSZ, &size);
  }
  /// How it ended; its last output is there then. -1: it did not within a minute.
  int wait_for_end() {
    int status = -1;
    const bool has_ended = wait_until([&] {
      read_some();
      return waitpid(pid_, &status, WNOHANG) == pid_;
    });
    if (has_ended) pid_ = -1;
    while (read_some()) continue;
    return has_ended ? status : -1;
  }
  const std::string& output() const { return output_; }
  bool is_as_before() const {
    termios now{};
    tcgetattr(other_end_, &now);
    return now.c_lflag == before_.c_lflag && std::memcmp(now.c_cc, before_.c_cc, sizeof now.c_cc) == 0;
  }

 private:
  bool read_some() {
    pollfd entry{terminal_, POLLIN, 0};
    if (poll(&entry, 1, 10) <= 0) return false;
    char buffer[4096];
    const ssize_t bytes = read(terminal_, buffer, sizeof buffer);
    if (bytes > 0) output_.append(buffer, static_cast<std::size_t>(bytes));
    return bytes > 0;
  }

  int terminal_ = -1;
  int other_end_ = -1;  ///< The terminal of its processes.
  pid_t pid_ = -1;
  termios before_{};
  std::string output_;
};

TEST(Top, SaysWhoIsLateAndHowMuchIsDone) {
  const SteppingJob job;
  const auto json = nlohmann::json::parse(shell_run("$RETINUE top --json " + job.pid()).output);
  EXPECT_EQ(json["name"], "calling_program-" + job.pid());
  EXPECT_EQ(json["straggler"]["rank"], 1);
  EXPECT_EQ(json["straggler"]["context"], 1);
  EXPECT_GT(json["straggler"]["waited_seconds"], 0);
  EXPECT_GE(json["straggler"]["collectives"], json["straggler"]["last"]);
  ASSERT_EQ(json["ranks"].size(), 3u);
  for (const auto& rank : json["ranks"]) {
    EXPECT_EQ(rank["state"], "running");
    EXPECT_GT(rank["calls_per_second"], 0);
    EXPECT_GT(rank["steps"], 0);
    EXPECT_GT(rank["steps_per_second"], 0);
    EXPECT_NEAR(rank["bytes_per_second"].get<double>(), rank["calls_per_second"].get<double>() * 4000, 1);
  }
}

TEST(Top, IsPlainLinesWhereThereIsNoTerminal) {
  SteppingJob job;
  const std::string once = shell_run("$RETINUE top --once --interval 0.1 " + job.pid()).output;
  EXPECT_TRUE(contains(once, "last minute: rank 1 of context 1 was the last to begin ")) << once;
  EXPECT_TRUE(contains(once, "CONTEXT  RANK      PID STATE")) << once;
  EXPECT_FALSE(contains(once, "\x1b")) << once;
  StartedProgram top("retinue", {"top", "--interval", "0.1", job.pid()});
  EXPECT_TRUE(contains(top.read_line(), "calling_program-"));
  EXPECT_EQ(top.read_line().substr(0, 24), "3 of 3 ranks are running");
  job.end();
  EXPECT_TRUE(top.read_all().ends_with("has ended\n"));
}

TEST(Top, FollowsTheWindowAndPutsTheTerminalBack) {
  const SteppingJob job;
  OnATerminal top(job.pid());
  EXPECT_TRUE(top.shows("\x1b[?1049h"));
  EXPECT_TRUE(top.shows("        1     2"));
  EXPECT_FALSE(top.is_as_before());
  top.resize(6, 40);
  EXPECT_TRUE(top.shows("  ... 3 more lines do not fit on the sc"));
  top.resize(20, 200);
  EXPECT_TRUE(top.shows("context 1/world"));
  top.type("xq");
  const int status = top.wait_for_end();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(contains(top.output(), "\x1b[?25h\x1b[?1049l"));
  EXPECT_TRUE(top.is_as_before());
}

TEST(Top, IsLeftByCtrlC) {
  const SteppingJob job;
  OnATerminal top(job.pid());
  EXPECT_TRUE(top.shows("CONTEXT"));
  top.type("\x03");
  const int status = top.wait_for_end();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(top.is_as_before());
}

TEST(Top, EndsWithTheJob) {
  SteppingJob job;
  OnATerminal top(job.pid());
  EXPECT_TRUE(top.shows("CONTEXT"));
  job.end();
  EXPECT_EQ(top.wait_for_end(), 0);
  EXPECT_TRUE(contains(top.output(), "has ended")) << top.output();
}

TEST(Top, CommitsNoMemoryOfTheJob) {
  StartedProgram program("calling_program", {"calls", "3"});
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(program.read_line(), "ready\n");
  const std::string pid = std::to_string(program.pid());
  const std::string blocks = "stat -L -c %b /proc/" + pid + "/fd/$(ls -l /proc/" + pid +
                             "/fd | sed -n 's/.* \\([0-9]*\\) -> .*memfd:retinue-job.*/\\1/p' | head -1)";
  const std::string before = shell_run(blocks).output;
  EXPECT_GT(std::stoi(before), 0);
  const std::string once = shell_run("$RETINUE top --once --interval 0.1 " + pid).output;
  EXPECT_TRUE(contains(once, " MiB        -       0        0 B ")) << once;
  EXPECT_EQ(shell_run("$RETINUE trace --out - " + pid + " > /dev/null").status, 0);
  EXPECT_EQ(shell_run(blocks).output, before);
  kill(program.pid(), SIGKILL);
  program.wait_for_all();
}

}  // namespace
