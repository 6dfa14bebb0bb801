// A random process of a random job gets a random signal at a random time, for ten seconds and always the same ones in a
// run of all tests; `make chaos SEED=… SECONDS=…` does others.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/paths.h"

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

constexpr auto kEnd = std::chrono::seconds(60);

/// What is done in one round; the seed alone decides.
struct Round {
  std::vector<std::string> command;
  int signal;
  milliseconds after;
  std::uint64_t whom;

  std::string text() const {
    return fmt::format("{}: signal {} after {} ms to no. {}", fmt::join(command, " "), signal, after.count(),
                       whom % 16);
  }
};

template <class Values>
const auto& one_of(const Values& values, std::mt19937_64& random) {
  return values[random() % values.size()];
}

Round random_round(std::mt19937_64& random) {
  const std::string program = RETINUE_BIN_DIR "/chaos_program";
  static const std::vector<std::string> kWork = {"sums", "queue", "lock", "pool", "nested"};
  static const std::vector<std::string> kMethods = {"forkserver", "spawn", "fork"};
  static const std::vector<int> kSignals = {SIGKILL, SIGKILL, SIGKILL, SIGTERM, SIGINT,  SIGSEGV,
                                            SIGABRT, SIGHUP,  SIGQUIT, SIGPIPE, SIGUSR1, SIGBUS};
  Round round;
  if (random() % 4 == 0)
    round.command = {RETINUE_BIN_DIR "/retinue",
                     "run",
                     "-n",
                     "3",
                     "--shutdown-timeout",
                     "1",
                     "sh",
                     "-c",
                     "setsid sleep 1000 & exec " + program + " ranked"};
  else
    round.command = {program, one_of(kWork, random), one_of(kMethods, random)};
  round.signal = one_of(kSignals, random);
  round.after = milliseconds(random() % 500);
  round.whom = random();
  return round;
}

/// This process's descendants, in no order that tells which is which. Orphans come to this process.
std::vector<pid_t> descendants() {
  std::vector<pid_t> found = {getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::error_code error;
    for (const auto& task : fs::directory_iterator(fmt::format("/proc/{}/task", found[i]), error)) {
      std::ifstream children(task.path() / "children");
      for (pid_t child = 0; children >> child;) found.push_back(child);
    }
  }
  found.erase(found.begin());
  return found;
}

class Chaos : public testing::Test {
 protected:
  Chaos() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::string pattern = testing::TempDir() + "retinue_chaos_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    setenv("TMPDIR", folder_.c_str(), 1);
    setenv("HOME", folder_.c_str(), 1);
    shared_before_ = files_of("/dev/shm");
  }
  ~Chaos() override { fs::remove_all(folder_); }

  static std::set<std::string> files_of(const fs::path& folder) {
    std::set<std::string> files;
    std::error_code error;
    for (const auto& entry : fs::recursive_directory_iterator(folder, error))
      if (!entry.is_directory()) files.insert(entry.path());
    return files;
  }

  /// Started by hand: other tests beside it may have files in /dev/shm.
  static bool is_alone() { return std::getenv("CHAOS_SECONDS") != nullptr; }

  pid_t start(const Round& round) const {
    const std::string output = folder_ / "output";
    const pid_t pid = fork();
    if (pid != 0) return pid;
    const int fd = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(fd, 1);
    dup2(fd, 2);
    setsid();
    std::vector<char*> words;
    for (const std::string& word : round.command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(126);
  }

  /// Whether all that came from the program has ended in time.
  static bool all_end() {
    const auto end = Clock::now() + kEnd;
    for (;;) {
      pid_t pid = 0;
      while ((pid = waitpid(-1, nullptr, WNOHANG | __WALL)) > 0) continue;
      if (pid < 0 && errno == ECHILD) return true;
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  void run(const Round& round) {
    start(round);
    std::this_thread::sleep_for(round.after);  // The point of this: at no moment in particular.
    const std::vector<pid_t> all = descendants();
    if (!all.empty()) kill(all[round.whom % all.size()], round.signal);
    const bool ended = all_end();
    std::ostringstream output;
    output << std::ifstream(folder_ / "output").rdbuf();
    EXPECT_TRUE(ended) << "processes are left: " << fmt::format("{}", fmt::join(descendants(), ", ")) << output.str();
    for (const pid_t pid : descendants()) kill(pid, SIGKILL);
    EXPECT_EQ(output.str().find("WRONG"), std::string::npos) << output.str();
    fs::remove(folder_ / "output");
    for (const std::string& file : files_of(folder_))
      EXPECT_NE(file.find("/.cache/"), std::string::npos)
          << "left: " << file;  // What the machine's first job measured.
    if (is_alone()) {
      EXPECT_EQ(files_of("/dev/shm"), shared_before_);
    }
  }

  fs::path folder_;
  std::set<std::string> shared_before_;
};

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::stoull(text);
}

TEST_F(Chaos, LeavesNothingAndNoWrongValue) {
  const auto of_the_clock = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  const std::uint64_t seed = number_of("CHAOS_SEED", is_alone() ? of_the_clock : 1);
  const auto end = Clock::now() + std::chrono::seconds(number_of("CHAOS_SECONDS", 10));
  std::mt19937_64 random(seed);
  int rounds = 0;
  for (; Clock::now() < end && !HasFailure(); ++rounds) {
    const Round round = random_round(random);
    SCOPED_TRACE(fmt::format("CHAOS_SEED={}, round {}: {}", seed, rounds, round.text()));
    run(round);
  }
  fmt::print("{} rounds with CHAOS_SEED={}\n", rounds, seed);
}

}  // namespace
