// Who dies, how, and when: afterwards nothing of the job is left, and who survives says what happened.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/paths.h"

namespace {

using Clock = std::chrono::steady_clock;

/// Of a cell: what takes longer hangs.
constexpr auto kPatience = std::chrono::seconds(40);

/// One row of the table: the role dies in the phase, in jobs that are started by the methods.
struct Row {
  const char* role;
  const char* phase;
  const char* fault;    ///< Place of the fault; empty: the victim program does it itself.
  const char* says;     ///< What the survivors must say; empty: nobody is left to say anything.
  const char* methods;  ///< f: kForkserver, s: kSpawn, k: kFork, r: `retinue run`, which then is the program.
};

constexpr Row kRows[] = {
    {"program", "before the first line", "program.runtime", "", "fskr"},
    {"program", "starting", "program.start", "", "fskr"},
    {"program", "starting", "program.fork:1", "", "k"},
    {"program", "running", "", "", "fsk"},
    {"program", "running", "program.signal", "", "r"},
    {"program", "in a collective", "", "", "fsk"},
    {"program", "in a collective", "program.signal", "", "r"},
    {"program", "shutting down", "program.shutdown", "ok", "fskr"},
    {"guardian", "before the first line", "guardian.start", "guardian", "fskr"},
    {"guardian", "starting", "guardian.begin", "guardian", "fskr"},
    {"guardian", "starting", "guardian.fork:1", "guardian", "fsr"},
    {"guardian", "starting", "guardian.adopt:1", "guardian", "k"},
    {"guardian", "running", "guardian.signal", "guardian", "fskr"},
    {"guardian", "in a collective", "guardian.signal", "guardian", "fskr"},
    {"guardian", "shutting down", "guardian.reap", "guardian", "fskr"},
    {"guardian", "shutting down", "guardian.shutdown", "ok", "fskr"},
    {"helper", "running", "helper.work", "so that the helper is needed", "fskr"},
    {"helper", "shutting down", "helper.start", "so that the helper is needed", "fskr"},
    {"rank", "before the first line", "rank.forked:1", "rank 1", "fskr"},
    {"rank", "starting", "rank.start:1", "rank 1", "fskr"},
    {"rank", "running", "", "rank 1", "fskr"},
    {"rank", "in a collective", "", "rank 1", "fskr"},
    {"rank", "shutting down", "rank.finish:1", "", "fskr"},
    {"grandchild", "running", "", "ok", "fskr"},
    {"grandchild", "in a collective", "", "ok", "fskr"},
    {"grandchild", "shutting down", "", "ok", "fskr"},
    {"daemon", "running", "", "ok", "fskr"},
    {"daemon", "in a collective", "", "ok", "fskr"},
    {"daemon", "shutting down", "", "ok", "fskr"},
};

constexpr const char* kActions[] = {"kill", "segv", "exit"};

struct Cell {
  Row row;
  std::string action;
  char method;

  std::string method_name() const {
    return method == 'f' ? "forkserver" : method == 's' ? "spawn" : method == 'k' ? "fork" : "run";
  }
  std::string name() const {
    return std::string(row.role) + " " + row.phase + " (" + row.fault + ") " + action + " " + method_name();
  }
  /// A rank that exits with code 0 has not failed, unless its peers need it, or it should have made a Runtime.
  std::string expected() const {
    const std::string phase = row.phase;
    const bool is_missed = phase == "in a collective" || (phase == "before the first line" && method == 's');
    const std::string says = std::string(row.role) == "rank" && action == "exit" && !is_missed ? "ok" : row.says;
    return says == "ok" && method == 'r' ? "" : says;
  }
  std::vector<std::string> command() const {
    std::vector<std::string> words;
    if (method == 'r') words = {RETINUE_BIN_DIR "/retinue", "run", "-n", "3"};
    for (const std::string& word : {std::string(RETINUE_BIN_DIR "/kill_victim_program"), std::string(row.role), action,
                                    std::string(row.phase), method_name()})
      words.push_back(word);
    return words;
  }
};

std::vector<Cell> cells_of(const std::string& role) {
  std::vector<Cell> cells;
  for (const Row& row : kRows)
    for (const char* action : kActions)
      for (const char* method = row.methods; *method != '\0'; ++method)
        if (row.role == role) cells.push_back({row, action, *method});
  return cells;
}

/// An empty folder for temporary files, which is the working directory too, and must be empty in the end.
class WorkFolder {
 public:
  WorkFolder() {
    char path[] = "/tmp/retinue-kill-XXXXXX";
    path_ = mkdtemp(path);
    setenv("TMPDIR", path_.c_str(), 1);
    if (chdir(path_.c_str()) != 0) std::abort();
  }
  ~WorkFolder() { std::filesystem::remove_all(path_); }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  /// What is in it, which is removed. ThreadSanitizer makes a file there when a process starts, and unlinks it at once:
  /// one that is killed in between leaves it, which is none of ours.
  std::vector<std::string> take_files() const {
    std::vector<std::string> files;
    for (const auto& file : std::filesystem::directory_iterator(path_)) {
      if (!file.path().filename().string().starts_with("tsan.rodata.")) files.push_back(file.path().string());
      std::filesystem::remove_all(file);
    }
    return files;
  }

 private:
  std::string path_;
};

/// Runs cells one after the other in a process of its own, which orphans of the jobs come to.
class CellRunner {
 public:
  CellRunner() {
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    sigemptyset(&child_signal_);
    sigaddset(&child_signal_, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child_signal_, nullptr);
  }

  /// What is wrong; empty if nothing is.
  std::string run(const Cell& cell) {
    deadline_ = Clock::now() + kPatience;
    output_.clear();
    problems_.clear();
    const int fd = start(cell);
    read_output(fd);
    close(fd);
    const int status = wait_for_all();
    if (output_.find(cell.expected()) == std::string::npos) problems_ += "nobody says '" + cell.expected() + "'\n";
    if (output_.find("is left") != std::string::npos) problems_ += "the program has a child in the end\n";
    for (const std::string& file : folder_.take_files()) problems_ += "a file is left: " + file + "\n";
    check_status(cell, status);
    note_job_memory();
    return problems_.empty() ? "" : cell.name() + ":\n" + problems_ + output_;
  }

  /// Job memory that somebody still has, in all the jobs that were run.
  std::string find_job_memory() const {
    std::string found;
    for (const auto& process : std::filesystem::directory_iterator("/proc")) {
      std::ifstream maps(process.path() / "maps");
      for (std::string line; std::getline(maps, line);) {
        const auto name = line.find(" /memfd:");
        if (name == std::string::npos) continue;
        const std::string inode = line.substr(line.find_last_of(' ', line.find_last_not_of(' ', name - 1)) + 1);
        if (job_memories_.contains(std::strtoull(inode.c_str(), nullptr, 10)))
          found += "job memory is mapped by " + process.path().string() + ": " + line + "\n";
      }
    }
    return found;
  }

 private:
  int start(const Cell& cell) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    const std::string fault = cell.row.fault;
    std::vector<std::string> words = cell.command();
    program_ = fork();
    if (program_ == 0) {
      unsetenv("RETINUE_FAULT");
      if (!fault.empty()) setenv("RETINUE_FAULT", (fault + "=" + cell.action).c_str(), 1);
      dup2(ends[1], 1);
      dup2(ends[1], 2);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, nullptr);
      std::vector<char*> argv;
      for (std::string& word : words) argv.push_back(word.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(126);
    }
    close(ends[1]);
    return ends[0];
  }

  int left_ms() const {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
  }

  /// Until nobody holds the pipe's other end any more.
  void read_output(int fd) {
    for (;;) {
      pollfd entry{fd, POLLIN, 0};
      if (poll(&entry, 1, left_ms()) != 1) return;
      char buffer[4096];
      const ssize_t bytes = read(fd, buffer, sizeof buffer);
      if (bytes <= 0) return;
      output_.append(buffer, static_cast<std::size_t>(bytes));
    }
  }

  /// Waits for the program and all that came from it; what does not end is named and killed. The program's status.
  int wait_for_all() {
    int status_of_program = -1;
    for (;;) {
      int status = 0;
      const pid_t pid = waitpid(-1, &status, __WALL | WNOHANG);
      if (pid < 0) return status_of_program;
      if (pid == program_) status_of_program = status;
      if (pid > 0) continue;
      const timespec second{1, 0};
      if (left_ms() == 0) kill_rest();
      sigtimedwait(&child_signal_, nullptr, &second);
    }
  }

  void kill_rest() {
    std::ifstream children("/proc/thread-self/children");
    for (pid_t pid = 0; children >> pid;) {
      std::string name;
      std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
      problems_ += "process " + std::to_string(pid) + " (" + name + ") is left\n";
      kill(pid, SIGKILL);
    }
  }

  void check_status(const Cell& cell, int status) {
    if (std::string(cell.row.role) != "program" || cell.action == "exit") return;
    // A sanitizer's handler makes an exit of SIGSEGV.
    if (!WIFSIGNALED(status) && (cell.action != "segv" || WEXITSTATUS(status) == 0))
      problems_ += "the program did not die\n";
  }

  void note_job_memory() {
    const std::string words = "job memory ";
    for (auto at = output_.find(words); at != std::string::npos; at = output_.find(words, at + 1))
      job_memories_.insert(std::strtoull(output_.c_str() + at + words.size(), nullptr, 10));
  }

  WorkFolder folder_;
  pid_t program_ = 0;
  sigset_t child_signal_;
  Clock::time_point deadline_;
  std::string output_;
  std::string problems_;
  std::set<unsigned long long> job_memories_;
};

/// A process that runs every `of`-th cell and writes what is wrong into the pipe that is returned.
int start_runner(const std::vector<Cell>& cells, std::size_t first, std::size_t of) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  if (fork() != 0) {
    close(ends[1]);
    return ends[0];
  }
  std::string problems;
  {
    CellRunner runner;
    for (std::size_t i = first; i < cells.size(); i += of) problems += runner.run(cells[i]);
    problems += runner.find_job_memory();
  }
  for (std::size_t done = 0; done < problems.size();) {
    const ssize_t bytes = write(ends[1], problems.data() + done, problems.size() - done);
    if (bytes <= 0) break;
    done += static_cast<std::size_t>(bytes);
  }
  _exit(0);
}

class KillMatrix : public testing::TestWithParam<std::string> {};

TEST_P(KillMatrix, NothingIsLeftAndSurvivorsKnowWhy) {
  const std::vector<Cell> cells = cells_of(GetParam());
  const std::size_t runners = 2 * std::max(1u, std::thread::hardware_concurrency());
  std::vector<int> pipes;
  for (std::size_t i = 0; i < runners; ++i) pipes.push_back(start_runner(cells, i, runners));
  for (const int fd : pipes) {
    std::string problems;
    char buffer[4096];
    for (ssize_t bytes = 0; (bytes = read(fd, buffer, sizeof buffer)) > 0;)
      problems.append(buffer, static_cast<std::size_t>(bytes));
    close(fd);
    EXPECT_EQ(problems, "");
  }
  for (std::size_t i = 0; i < runners; ++i) {
    int status = 0;
    EXPECT_GT(wait(&status), 0);
    EXPECT_EQ(status, 0) << "a runner of cells died itself";
  }
}

INSTANTIATE_TEST_SUITE_P(Victims, KillMatrix,
                         testing::Values("program", "guardian", "helper", "rank", "grandchild", "daemon"),
                         [](const auto& info) { return info.param; });

}  // namespace
