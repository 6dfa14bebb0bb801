#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include "base/version.h"
#include "cli/watched_job.h"
#include "ipc/memory/job_layout.h"
#include "os/sockets/control_socket.h"
#include "os/sockets/local_socket.h"
#include "process/observe/found_job.h"
#include "process/observe/job_socket_protocol.h"
#include "retinue/base/error.h"
#include "retinue/ipc/job_memory.h"
#include "support/paths.h"
#include "support/started_program.h"

using retinue::test::contains;
using retinue::test::listed_job;
using retinue::test::ranks_come_to;
using retinue::test::shell_run;
using retinue::test::StartedProgram;
using retinue::test::unique_name;

namespace {

TEST(Ps, ListsRanksWithTheirStates) {
  const std::string name = unique_name("states");
  StartedProgram command(
      "retinue", {"run", "-n", "3", "--rdzv-id", name, "sh", "-c", "test $RANK = 2 && exit 0; exec sleep 1000"});
  ASSERT_TRUE(ranks_come_to(name, {"running", "running", "ended"}));
  const nlohmann::json job = listed_job(name);
  EXPECT_EQ(job["program_pid"], command.pid());
  const pid_t second = job["ranks"][1]["pid"];
  EXPECT_EQ(job["ranks"][1]["command"], "sleep 1000");
  EXPECT_GT(job["ranks"][1]["resident_bytes"], 0);
  EXPECT_EQ(job["ranks"][2]["end"], "returned");
  kill(second, SIGSTOP);
  EXPECT_TRUE(ranks_come_to(name, {"running", "stopped", "ended"}));
  const std::string table = shell_run("$RETINUE ps").output;
  EXPECT_TRUE(contains(table, std::to_string(second) + " stopped")) << table;
  EXPECT_TRUE(contains(table, "returned\n")) << table;
  kill(second, SIGCONT);
  EXPECT_TRUE(ranks_come_to(name, {"running", "running", "ended"}));
  kill(command.pid(), SIGTERM);
  command.wait_for_all();
  EXPECT_TRUE(listed_job(name).is_null());
}

TEST(Ps, ShowsTheCallThatARankIsIn) {
  StartedProgram program("calling_program", {"waits", "2"});
  EXPECT_EQ(program.read_line(), "ready\n");
  const std::string name = "calling_program-" + std::to_string(program.pid());
  ASSERT_TRUE(retinue::test::wait_until([&] {
    const auto ranks = listed_job(name)["ranks"];
    return ranks.size() == 2 && !ranks[0]["call"].is_null() && ranks[0]["call"]["seconds"] > 0.1;
  }));
  const auto ranks = listed_job(name)["ranks"];
  EXPECT_EQ(ranks[0]["call"]["kind"], "all_reduce");
  EXPECT_EQ(ranks[0]["call"]["group"], "context 1/world");
  EXPECT_EQ(ranks[0]["call"]["sequence"], 2);
  EXPECT_TRUE(contains(ranks[0]["call"]["site"], "calling_program.cpp:"));
  EXPECT_TRUE(ranks[1]["call"].is_null());
  const std::string table = shell_run("$RETINUE ps").output;
  EXPECT_TRUE(contains(table, " all_reduce ")) << table;
  kill(program.pid(), SIGKILL);
  program.wait_for_all();
}

TEST(Ps, NamesAJobByItsProgramOrByTheVariable) {
  StartedProgram program("waiting_program");
  program.read_line();
  EXPECT_FALSE(listed_job("waiting_program-" + std::to_string(program.pid())).is_null());
  kill(program.pid(), SIGKILL);
  program.wait_for_all();
  const std::string name = unique_name("variable");
  setenv("RETINUE_JOB_NAME", name.c_str(), 1);
  StartedProgram named("waiting_program");
  unsetenv("RETINUE_JOB_NAME");
  named.read_line();
  EXPECT_EQ(listed_job(name)["program_pid"], named.pid());
  kill(named.pid(), SIGKILL);
  named.wait_for_all();
}

TEST(Ps, ForgetsAJobWhoseGuardianWasKilled) {
  const std::string name = unique_name("forgotten");
  StartedProgram command("retinue", {"run", "--rdzv-id", name, "sleep", "1000"});
  ASSERT_TRUE(ranks_come_to(name, {"running"}));
  kill(listed_job(name)["guardian_pid"].get<pid_t>(), SIGKILL);
  command.wait_for_all();
  EXPECT_TRUE(listed_job(name).is_null());
}

TEST(Ps, CommitsNoMemoryOfTheJob) {
  const std::string name = unique_name("small");
  StartedProgram command("retinue", {"run", "--rdzv-id", name, "sleep", "1000"});
  ASSERT_TRUE(ranks_come_to(name, {"running"}));
  const std::string blocks = "stat -L -c %b /proc/" + std::to_string(command.pid()) + "/fd/$(ls -l /proc/" +
                             std::to_string(command.pid()) +
                             "/fd | sed -n 's/.* \\([0-9]*\\) -> .*memfd:retinue-job.*/\\1/p' | head -1)";
  const std::string before = shell_run(blocks).output;
  EXPECT_GT(std::stoi(before), 0);
  listed_job(name);
  EXPECT_EQ(shell_run(blocks).output, before);
  kill(command.pid(), SIGTERM);
  command.wait_for_all();
}

/// A guardian that hands out `memory` at its socket until it is destroyed, and knows no other request. The job's id is
/// this process's: tests beside it have their own. Jobs have random ids, so this one is the first in order.
class FakeGuardian {
 public:
  static std::uint64_t job_id() { return static_cast<std::uint64_t>(getpid()); }

  explicit FakeGuardian(const retinue::JobMemory& memory)
      : listening_(retinue::listen_local(retinue::job_socket_name(geteuid(), job_id())).value()),
        thread_([this, &memory] { serve(memory); }) {}
  ~FakeGuardian() {
    is_over_ = true;
    shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  void serve(const retinue::JobMemory& memory) {
    while (!is_over_) {
      pollfd entry{listening_.get(), POLLIN, 0};
      poll(&entry, 1, -1);
      const auto visitor = retinue::accept_local(listening_.get());
      if (!visitor) continue;
      entry = {visitor->get(), POLLIN, 0};
      poll(&entry, 1, -1);
      retinue::JobSocketRequest request;
      recv(visitor->get(), &request, sizeof request, 0);
      retinue::JobSocketReply answer{.refused = request.kind == retinue::JobSocketRequest::kLook ? 0U : 1U};
      std::vector<int> descriptors;
      if (answer.refused == 0) descriptors.push_back(memory.memfd());
      retinue::send_message(visitor->get(), &answer, sizeof answer, descriptors);
    }
  }

  std::atomic<bool> is_over_ = false;
  retinue::FileDescriptor listening_;
  std::thread thread_;
};

TEST(Ps, RefusesAnotherVersionsJobAndGoesOn) {
  const auto memory = retinue::JobMemory::create(std::size_t{128} << 20);
  memory->header().layout_version = 1;
  const FakeGuardian guardian(*memory);
  const std::string name = unique_name("beside_old");
  StartedProgram command("retinue", {"run", "--rdzv-id", name, "sleep", "1000"});
  ASSERT_TRUE(ranks_come_to(name, {"running"}));
  const auto listed = shell_run("$RETINUE ps");
  EXPECT_EQ(WEXITSTATUS(listed.status), 1) << listed.output;
  EXPECT_TRUE(contains(listed.output, "another version of Retinue (before 0.7.0")) << listed.output;
  EXPECT_TRUE(contains(listed.output, name)) << listed.output;
  const auto stopped = shell_run(fmt::format("$RETINUE stop {:016x}", FakeGuardian::job_id()));
  EXPECT_TRUE(contains(stopped.output, "another version of Retinue (before 0.7.0")) << stopped.output;
  kill(command.pid(), SIGTERM);
  command.wait_for_all();
}

TEST(Ps, ARefusedRequestNamesTheVersionThatRefuses) {
  const auto memory = retinue::JobMemory::create(std::size_t{128} << 20);
  retinue::process_slot(*memory, retinue::kGuardianSlot).pid = getpid();
  const auto says = [&](const std::string& text) {
    const FakeGuardian guardian(*memory);
    try {
      retinue::ask_for_rank_descriptors(FakeGuardian::job_id());
    } catch (const retinue::UsageError& error) {
      return contains(error.what(), text);
    }
    return false;
  };
  EXPECT_TRUE(says(std::string("another version of Retinue than ") + retinue::version()));
  memory->header().layout_version = 1;
  EXPECT_TRUE(says(std::string("another version of Retinue (before 0.7.0, and this is ") + retinue::version()));
}

constexpr uid_t kNobody = 65534;

/// What the command prints as another user.
std::string output_as_nobody(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const int program = open(RETINUE_BIN_DIR "/retinue", O_RDONLY);  // Its folder may be closed to others.
  const pid_t pid = fork();
  if (pid == 0) {
    for (const int fd : {1, 2}) dup2(ends[1], fd);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(1);
    fexecve(program, argv.data(), environ);
    _exit(126);
  }
  close(ends[1]);
  close(program);
  std::string output;
  char buffer[4096];
  for (ssize_t bytes = 0; (bytes = read(ends[0], buffer, sizeof buffer)) > 0;)
    output.append(buffer, static_cast<std::size_t>(bytes));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return output;
}

/// As another user: 0 when the connection was closed again without a word.
int connect_as_nobody(const std::string& name) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (setuid(kNobody) != 0) _exit(1);
    const auto socket = retinue::connect_local(name, std::chrono::seconds(60));
    if (!socket) _exit(2);
    const retinue::JobSocketRequest request;
    send(socket->get(), &request, sizeof request, MSG_NOSIGNAL);
    retinue::JobSocketReply answer;
    _exit(recv(socket->get(), &answer, sizeof answer, 0) > 0 ? 3 : 0);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

TEST(Ps, ShowsNobodyElsesJobs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const std::string name = unique_name("private");
  StartedProgram command("retinue", {"run", "--rdzv-id", name, "sleep", "1000"});
  ASSERT_TRUE(ranks_come_to(name, {"running"}));
  const std::string id = listed_job(name)["id"];
  EXPECT_FALSE(contains(output_as_nobody({"retinue", "ps"}), name));
  EXPECT_TRUE(contains(output_as_nobody({"retinue", "ps", "--all"}), "only root"));
  const std::string stopped = output_as_nobody({"retinue", "stop", id});
  EXPECT_TRUE(contains(stopped, "there is no job '" + id + "'")) << stopped;
  EXPECT_EQ(connect_as_nobody("retinue/0/" + id), 0);
  EXPECT_TRUE(ranks_come_to(name, {"running"}));
  kill(command.pid(), SIGTERM);
  command.wait_for_all();
}

}  // namespace
