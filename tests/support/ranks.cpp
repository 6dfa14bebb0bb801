#include "support/ranks.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "ipc/memory/process_slot.h"
#include "ipc/memory/process_table.h"
#include "os/files/file_descriptor.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue::test {
namespace {

struct Child {
  pid_t pid = -1;
  FileDescriptor report;  ///< The rank writes its failures here; its end is the rank's end.
  std::string failures;
  int status = 0;
};

/// Collects what the rank's expectations have to say.
class FailureCollector : public testing::EmptyTestEventListener {
 public:
  explicit FailureCollector(std::string& text) : text_(text) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed() || text_.size() > 4000) return;
    text_ += std::string(result.file_name() != nullptr ? result.file_name() : "?") + ":" +
             std::to_string(result.line_number()) + ": " + result.message() + "\n";
  }

 private:
  std::string& text_;
};

[[noreturn]] void be_rank(const JobGroup& group, const std::function<void(const JobGroup&)>& body, int report) {
  const std::uint32_t slot = group.process_slots[static_cast<std::size_t>(group.rank)];
  enter_process_slot(*group.memory, slot);
  std::string failures;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailureCollector(failures));
  try {
    body(group);
  } catch (const std::exception& error) {
    failures += std::string("exception: ") + error.what() + "\n";
  }
  process_slot(*group.memory, slot).state.store(ProcessState::kFinished, std::memory_order_release);
  const char* text = failures.data();
  for (std::size_t left = failures.size(); left > 0;) {
    const ssize_t written = write(report, text, left);
    if (written <= 0) break;
    text += written;
    left -= static_cast<std::size_t>(written);
  }
  _exit(failures.empty() ? 0 : 1);
}

Child start_rank(const JobGroup& group, const std::function<void(const JobGroup&)>& body) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("pipe for a rank", errno);
  Child child;
  child.report = FileDescriptor(ends[0]);
  FileDescriptor write_end(ends[1]);
  group.memory->retain_holds_for(group.process_slots[static_cast<std::size_t>(group.rank)]);
  child.pid = fork();
  if (child.pid < 0) throw SystemError("fork of a rank", errno);
  if (child.pid == 0) be_rank(group, body, write_end.get());
  return child;
}

/// Reads what there is; false when the rank has ended.
bool read_report(Child& child) {
  char text[4096];
  const ssize_t got = read(child.report.get(), text, sizeof text);
  if (got > 0) child.failures.append(text, static_cast<std::size_t>(got));
  return got > 0;
}

void reap(Child& child, ProcessSlot& slot) {
  waitpid(child.pid, &child.status, 0);
  slot.exit_status.store(child.status, std::memory_order_relaxed);
  slot.state.store(ProcessState::kDead, std::memory_order_release);
  child.report.reset();
}

void watch_ranks(std::vector<Child>& children, const JobGroup& group, Deadline deadline) {
  bool killed = false;
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<std::size_t> ranks;
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!children[i].report) continue;
      polled.push_back({.fd = children[i].report.get(), .events = POLLIN, .revents = 0});
      ranks.push_back(i);
    }
    if (polled.empty()) return;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left(std::chrono::hours(1)));
    if (poll(polled.data(), polled.size(), killed ? -1 : static_cast<int>(left.count())) == 0) {
      for (const std::size_t i : ranks) kill(children[i].pid, SIGKILL);
      ADD_FAILURE() << ranks.size() << " ranks still ran at the deadline, the first of them rank " << ranks[0];
      killed = true;
    }
    for (std::size_t k = 0; k < polled.size(); ++k) {
      Child& child = children[ranks[k]];
      if (polled[k].revents != 0 && !read_report(child))
        reap(child, process_slot(*group.memory, group.process_slots[ranks[k]]));
    }
  }
}

}  // namespace

void run_ranks(int size, const std::function<void(const JobGroup&)>& body, const RanksOptions& options) {
  const auto memory = JobMemory::create(options.memory_bytes);
  run_ranks_in(memory, size, body, options);
  EXPECT_EQ(memory->allocated_bytes(), 0u);
}

void run_ranks_in(const std::shared_ptr<JobMemory>& memory, int size, const std::function<void(const JobGroup&)>& body,
                  const RanksOptions& options) {
  JobGroup group{.memory = memory, .name = "test group", .rank = 0, .process_slots = {}};
  group.process_slots = reserve_process_slots(*group.memory, static_cast<std::uint32_t>(size));
  std::vector<Child> children;
  for (group.rank = 0; group.rank < size; ++group.rank) children.push_back(start_rank(group, body));
  watch_ranks(children, group, Deadline::after(options.timeout));
  for (int rank = 0; rank < size; ++rank) {
    const Child& child = children[static_cast<std::size_t>(rank)];
    const bool expected = std::find(options.killed.begin(), options.killed.end(), rank) != options.killed.end();
    EXPECT_EQ(WIFSIGNALED(child.status), expected) << "rank " << rank << ", wait status " << child.status;
    if (!child.failures.empty()) ADD_FAILURE() << "rank " << rank << ": " << child.failures;
    // By its exit code alone a sanitizer says that it found something.
    const bool failed = child.failures.empty() && WIFEXITED(child.status) && WEXITSTATUS(child.status) != 0;
    EXPECT_FALSE(failed) << "rank " << rank << " exited with code " << WEXITSTATUS(child.status);
    free_process_slot(*group.memory, group.process_slots[static_cast<std::size_t>(rank)]);
  }
  EXPECT_TRUE(waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) << "a process was left behind";
}

void run_rank_threads(int size, const std::function<void(const JobGroup&)>& body, const RanksOptions& options) {
  const auto run_thread = [&body](JobGroup group, int rank) {
    group.rank = rank;
    try {
      body(group);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ", exception: " << error.what();
    }
  };
  const auto run_threads = [&](const JobGroup& process) {
    JobGroup group = process;
    const auto others = reserve_process_slots(*group.memory, static_cast<std::uint32_t>(size - 1));
    group.process_slots.insert(group.process_slots.end(), others.begin(), others.end());
    for (const std::uint32_t slot : others) {
      process_slot(*group.memory, slot).pid.store(getpid());
      process_slot(*group.memory, slot).state.store(ProcessState::kRunning);
    }
    std::vector<std::thread> threads;
    for (int rank = 1; rank < size; ++rank) threads.emplace_back(run_thread, group, rank);
    run_thread(group, 0);
    for (std::thread& thread : threads) thread.join();
    for (const std::uint32_t slot : others) {
      process_slot(*group.memory, slot).state.store(ProcessState::kDead);
      free_process_slot(*group.memory, slot);
    }
  };
  run_ranks(1, run_threads, options);
}

}  // namespace retinue::test
