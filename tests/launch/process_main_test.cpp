#include "retinue/launch/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "retinue/ipc/pipe.h"
#include "retinue/launch/runtime.h"
#include "retinue/launch/spawn.h"
#include "support/start_methods.h"
#include "support/usage_error.h"

using retinue::Process;
using retinue::ProcessOptions;
using retinue::RankContext;
using retinue::Runtime;
using retinue::test::EachStartMethod;
using retinue::test::usage_error_of;

namespace {

constexpr auto kLong = std::chrono::minutes(1);

bool is_readable(int fd, int timeout_ms) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

/// Words in job memory that the process writes and the test reads.
class Words {
 public:
  Words() : memory_(Runtime::current().memory()), block_(memory_->allocate(4096)) { data()[0] = 0; }
  ~Words() { memory_->release(block_); }
  int* data() const { return memory_->at<int>(block_.offset); }
  std::uint64_t offset() const { return block_.offset; }

 private:
  std::shared_ptr<retinue::JobMemory> memory_;
  retinue::BlockHandle block_;
};

int note_sum(int first, int second, std::uint64_t offset) {
  Runtime::current().memory()->at<int>(offset)[0] = first + second;
  return first;
}

void send_and_end(retinue::Connection<int> end) {
  end.send(7);
}

TEST_P(EachStartMethod, HasWhatWasMovedIntoItAlone) {
  auto [here, there] = retinue::Pipe<int>::create();
  Process<send_and_end> process({.start_method = GetParam()}, std::move(there));
  process.start();
  EXPECT_EQ(here.recv(kLong), 7);
  EXPECT_THROW(here.recv(kLong), retinue::Closed);
}

TEST_P(EachStartMethod, RunsAFunctionWithItsArguments) {
  const Words words;
  Process<note_sum> process({.name = "adder", .start_method = GetParam()}, 20, 22, words.offset());
  EXPECT_EQ(process.name(), "adder");
  EXPECT_FALSE(process.daemon());
  EXPECT_FALSE(process.is_alive());
  EXPECT_FALSE(process.pid().has_value());
  EXPECT_FALSE(process.exitcode().has_value());
  process.start();
  EXPECT_GT(process.pid().value(), 0);
  process.join();
  EXPECT_EQ(words.data()[0], 42);
  EXPECT_EQ(process.exitcode(), 0);
  EXPECT_FALSE(process.is_alive());
  EXPECT_EQ(process.failure(), "");
  EXPECT_TRUE(process.join(std::chrono::seconds(0)));
}

void note_world(RankContext& context, std::uint64_t offset) {
  context.memory()->at<int>(offset)[0] = 10 * context.world_size() + context.rank();
}

TEST_P(EachStartMethod, RunsAFunctionThatTakesItsContext) {
  const Words words;
  Process<note_world> process({.start_method = GetParam()}, words.offset());
  process.start();
  process.join();
  EXPECT_EQ(words.data()[0], 10);
}

void wait_for_the_end() {
  for (;;) pause();
}

TEST_P(EachStartMethod, IsAliveUntilItIsTerminated) {
  Process<wait_for_the_end> process(ProcessOptions{.start_method = GetParam()});
  process.start();
  EXPECT_TRUE(process.is_alive());
  EXPECT_FALSE(process.join(std::chrono::milliseconds(1)));
  EXPECT_FALSE(is_readable(process.sentinel(), 0));
  EXPECT_FALSE(process.exitcode().has_value());
  testing::internal::CaptureStderr();
  process.terminate();
  EXPECT_TRUE(is_readable(process.sentinel(), 60'000));
  EXPECT_FALSE(process.is_alive());
  EXPECT_EQ(process.exitcode(), -SIGTERM);
  EXPECT_EQ(process.failure(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

void ignore_sigterm(std::uint64_t offset) {
  signal(SIGTERM, SIG_IGN);
  Runtime::current().memory()->at<int>(offset)[0] = 1;
  for (;;) pause();
}

TEST_P(EachStartMethod, IsKilledWithoutGrace) {
  const Words words;
  Process<ignore_sigterm> process({.start_method = GetParam(), .stop = {.terminate_wait = std::chrono::hours(1)}},
                                  words.offset());
  process.start();
  while (std::atomic_ref(words.data()[0]).load() == 0) usleep(1000);
  process.terminate();
  process.kill();
  process.join();
  EXPECT_EQ(process.exitcode(), -SIGKILL);
  EXPECT_EQ(process.failure(), "");
}

void fail(const std::string& how) {
  if (how == "throw") throw std::runtime_error("the reason");
  if (how == "exit") std::exit(3);
  if (how == "kill") raise(SIGKILL);
}

TEST_P(EachStartMethod, TellsItsFailureWithoutThrowing) {
  struct Case {
    std::string how;
    int code;
    std::string text;
  };
  for (const auto& [how, code, text] :
       {Case{"throw", 1, "raised std::runtime_error: the reason"}, Case{"exit", 3, "exited with code 3"},
        Case{"kill", -SIGKILL, "was killed by SIGKILL"}}) {
    testing::internal::CaptureStderr();
    Process<fail> process({.name = "failing one", .start_method = GetParam()}, how);
    process.start();
    EXPECT_NO_THROW(process.join());
    const std::string printed = testing::internal::GetCapturedStderr();
    EXPECT_EQ(process.exitcode(), code) << how;
    EXPECT_NE(process.failure().find(text), std::string::npos) << process.failure();
    // What a forked rank used is known in full when its parent has waited for it, after this was printed.
    const std::string failure = process.failure().substr(0, process.failure().find("\n  it ran for"));
    EXPECT_TRUE(failure.starts_with("failing one (pid ")) << failure;
    EXPECT_TRUE(printed.starts_with(failure + "\n")) << printed << process.failure();
  }
}

INSTANTIATE_TEST_SUITE_P(StartMethods, EachStartMethod, retinue::test::all_start_methods(),
                         retinue::test::start_method_name);

TEST(Process, HasADefaultName) {
  Process<wait_for_the_end> first;
  Process<wait_for_the_end> second;
  EXPECT_EQ(first.name().rfind("Process-", 0), 0u);
  EXPECT_NE(first.name(), second.name());
}

TEST(Process, ALambdaWillDo) {
  const Words words;
  Process<[](std::uint64_t offset) { Runtime::current().memory()->at<int>(offset)[0] = 5; }> process(words.offset());
  process.start();
  process.join();
  EXPECT_EQ(words.data()[0], 5);
}

TEST(Process, SaysWhatIsHeldWrong) {
  const auto says = [](const std::string& error, const std::string& text) {
    EXPECT_NE(error.find(text), std::string::npos) << error;
  };
  Process<wait_for_the_end> process({.name = "p"});
  says(usage_error_of([&] { process.join(); }), "Process::join: 'p' has not been started");
  says(usage_error_of([&] { process.terminate(); }), "Process::terminate: 'p' has not been started");
  says(usage_error_of([&] { process.kill(); }), "has not been started");
  says(usage_error_of([&] { static_cast<void>(process.sentinel()); }), "has not been started");
  process.start();
  says(usage_error_of([&] { process.start(); }), "Process::start: 'p' was started already");
  says(usage_error_of([&] { process.close(); }), "Process::close: 'p' still runs");
  Process<wait_for_the_end> moved = std::move(process);
  says(usage_error_of([&] { process.join(); }), "was moved from");  // NOLINT(bugprone-use-after-move)
  moved.kill();
  moved.join();
  moved.close();
  EXPECT_NO_THROW(moved.close());
  says(usage_error_of([&] { moved.join(); }), "Process::join: 'p' is closed");
  says(usage_error_of([&] { Process<wait_for_the_end>({.cpus = {4711}}).start(); }), "CPU 4711");
}

void start_a_process(std::uint64_t offset) {
  Process<note_sum> process(1, 2, offset);
  process.start();
  process.join();
}

TEST(Process, DaemonsMayHaveNoChildren) {
  const Words words;
  Process<start_a_process> parent(words.offset());
  parent.start();
  parent.join();
  EXPECT_EQ(words.data()[0], 3);
  testing::internal::CaptureStderr();
  Process<start_a_process> daemon({.daemon = true}, words.offset());
  EXPECT_TRUE(daemon.daemon());
  daemon.start();
  daemon.join();
  testing::internal::GetCapturedStderr();
  EXPECT_NE(daemon.failure().find("daemonic processes are not allowed to have children"), std::string::npos);
}

TEST(Process, LeavesNoDescriptorBehind) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator folder("/proc/self/fd");
    return std::distance(begin(folder), end(folder));
  };
  const auto before = descriptors();
  const Words words;
  for (int i = 0; i < 20; ++i) {
    Process<note_world> process(words.offset());
    process.start();
    process.join();
    EXPECT_TRUE(is_readable(process.sentinel(), 0));
  }
  EXPECT_EQ(descriptors(), before);
}

void echo(retinue::Connection<std::string> end) {
  for (;;) end.send(end.recv() + "!");
}

TEST_P(EachStartMethod, TalksThroughAPipeUntilItIsKilled) {
  auto [here, there] = retinue::Pipe<std::string>::create();
  Process<echo> process({.start_method = GetParam()}, there);
  process.start();
  const int fd = here.descriptor();
  for (const char* word : {"a", "b"}) {
    here.send(word);
    ASSERT_TRUE(is_readable(fd, 20'000));
    EXPECT_EQ(here.recv(kLong), word + std::string("!"));
    EXPECT_FALSE(is_readable(fd, 0));
  }
  there.close();
  process.kill();
  // Nobody has joined it.
  while (!here.poll()) ASSERT_TRUE(is_readable(fd, 20'000));
  EXPECT_THROW(here.recv(kLong), retinue::Closed);
  process.join();
}

TEST(Process, GoesOnWhenItIsDestroyed) {
  const Words words;
  int pid = 0;
  {
    Process<ignore_sigterm> process({.daemon = true, .stop = {.terminate_wait = std::chrono::milliseconds(1)}},
                                    words.offset());
    process.start();
    pid = process.pid().value();
  }
  while (std::atomic_ref(words.data()[0]).load() == 0) usleep(1000);
  EXPECT_EQ(::kill(pid, 0), 0);
  ::kill(pid, SIGKILL);
}

}  // namespace
