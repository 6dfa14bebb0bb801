#include "retinue/launch/guest.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <set>
#include <string>

#include "ipc/memory/job_layout.h"
#include "retinue/ipc/published.h"
#include "retinue/ipc/queue.h"
#include "retinue/ipc/simple_queue.h"
#include "retinue/launch/runtime.h"
#include "support/started_program.h"
#include "support/usage_error.h"
#include "support/wait_until.h"

using namespace std::chrono_literals;
using retinue::Runtime;
using retinue::test::StartedProgram;
using retinue::test::usage_error_of;

namespace {

constexpr auto kPatience = 20s;  // A wait that takes longer fails the test.

std::string job() {
  return Runtime::current().job_id();
}

/// Its wait() status. The guardian is a child of this process as well, and goes on.
int end_of(const StartedProgram& program) {
  int status = -1;
  EXPECT_TRUE(retinue::test::wait_until([&] { return waitpid(program.pid(), &status, WNOHANG) == program.pid(); }));
  return status;
}

TEST(Guest, WorksOnQueuesThatItFindsByName) {
  const std::size_t before = Runtime::current().memory()->allocated_bytes();
  {
    retinue::Queue<int> numbers({.capacity = 8});
    auto squares = retinue::SimpleQueue<int>::create();
    retinue::publish("numbers", numbers);
    StartedProgram first("guest_program", {"square", job()});
    StartedProgram second("guest_program", {"square", Runtime::current().job_name()});
    retinue::publish("squares", squares);  // They wait for it.
    std::set<int> expected;
    for (int i = 1; i <= 100; ++i) {
      ASSERT_TRUE(numbers.put(i, kPatience));
      expected.insert(i * i);
    }
    std::set<int> got;
    for (int i = 0; i < 100; ++i) got.insert(squares.get(kPatience).value_or(0));
    EXPECT_EQ(got, expected);
    numbers.close();
    EXPECT_EQ(first.read_line(), "closed\n");
    EXPECT_EQ(second.read_line(), "closed\n");
    EXPECT_EQ(end_of(first), 0);
    EXPECT_EQ(end_of(second), 0);
  }
  // What the guests held comes back.
  EXPECT_TRUE(retinue::test::wait_until([&] { return Runtime::current().memory()->allocated_bytes() == before; }));
}

TEST(Guest, BlocksNobodyWhenItIsKilled) {
  const std::size_t before = Runtime::current().memory()->allocated_bytes();
  {
    retinue::Queue<int> tasks(
        {.capacity = 2, .on_consumer_death = retinue::OnConsumerDeath::kRedeliver, .joinable = true});
    retinue::publish("tasks", tasks);
    tasks.put(42);
    StartedProgram guest("guest_program", {"hold", job()});
    EXPECT_EQ(guest.read_line(), "42\n");
    kill(guest.pid(), SIGKILL);
    EXPECT_EQ(tasks.get(kPatience), 42);
    tasks.task_done();
    end_of(guest);
  }
  EXPECT_TRUE(retinue::test::wait_until([&] { return Runtime::current().memory()->allocated_bytes() == before; }));
}

TEST(Guest, IsToldWhenTheJobHasEnded) {
  StartedProgram host("guest_program", {"host"});
  std::string id = host.read_line();
  id.pop_back();
  StartedProgram guest("guest_program", {"outlive", id});
  EXPECT_EQ(host.read_line(), "a guest was here\n");
  for (int i = 0; i < 4; ++i) {
    const std::string error = guest.read_line();
    EXPECT_TRUE(error.starts_with("SystemError: ") && error.find("the job ends") != std::string::npos) << error;
  }
  EXPECT_EQ(end_of(guest), 0);
  EXPECT_EQ(end_of(host), 0);
}

TEST(Guest, CannotBeOneOfNoJobNorWithARuntime) {
  StartedProgram guest("guest_program", {"square", "no_such_job"});
  const std::string error = guest.read_line();
  EXPECT_NE(error.find("UsageError: join_job: no job of this user has the name or the id 'no_such_job'"),
            std::string::npos)
      << error;
  EXPECT_TRUE(WIFEXITED(end_of(guest)));
  EXPECT_NE(usage_error_of([] { retinue::join_job(job()); }).find("has a Runtime"), std::string::npos);
}

TEST(Guest, IsRefusedToAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  StartedProgram stranger("guest_program", {"stranger", job()});
  EXPECT_EQ(stranger.read_line(), "UsageError: join_job: no job of this user has the name or the id '" + job() +
                                      "'; `retinue ps` lists the running jobs\n");
  // Others who know the name of its socket get no answer.
  EXPECT_EQ(stranger.read_line(), "Error: job " + job() + " has ended\n");
  EXPECT_EQ(end_of(stranger), 0);
}

TEST(Guest, IsRefusedWhereJobMemoryIsLaidOutOtherwise) {
  retinue::JobHeader& header = Runtime::current().memory()->header();
  header.layout_version = retinue::kJobLayoutVersion + 1;  // As if a later version had made the job.
  StartedProgram guest("guest_program", {"square", job()});
  const std::string error = guest.read_line();
  header.layout_version = retinue::kJobLayoutVersion;
  const std::string versions = "layouts " + std::to_string(retinue::kJobLayoutVersion + 1) + " and " +
                               std::to_string(retinue::kJobLayoutVersion) + ")";
  EXPECT_TRUE(error.starts_with("UsageError: join_job: job '" + job() + "' cannot be joined: ")) << error;
  EXPECT_NE(error.find(versions), std::string::npos) << error;
  EXPECT_TRUE(WIFEXITED(end_of(guest)));
}

TEST(Guest, FindsRoomForSoManyAndWhereOneWas) {
  StartedProgram crowd("guest_program", {"crowd", job()});
  EXPECT_EQ(crowd.read_line(),
            "Error: job " + job() + " accepts no more guests: it has as many guests or processes as it can\n");
  EXPECT_EQ(crowd.read_line(), "256\n");
  EXPECT_EQ(crowd.read_line(), "another one\n");
  EXPECT_EQ(end_of(crowd), 0);
}

TEST(Guest, ComesInWhenManyComeAtOnce) {
  StartedProgram rush("guest_program", {"rush", job()});
  EXPECT_EQ(rush.read_all(), "128\n");
  EXPECT_EQ(end_of(rush), 0);
}

TEST(Published, NamesLivingObjectsOnly) {
  {
    const retinue::Queue<int> queue({.capacity = 1});
    retinue::publish("name", queue);
    retinue::publish("name", queue);
    const retinue::Queue<int> other({.capacity = 1});
    EXPECT_NE(usage_error_of([&] { retinue::publish("name", other); }).find("another object"), std::string::npos);
    EXPECT_THROW(retinue::publish("", other), retinue::UsageError);
    EXPECT_THROW(retinue::publish(std::string(64, 'a'), other), retinue::UsageError);
    EXPECT_THROW(retinue::publish("none", retinue::Queue<int>()), retinue::UsageError);
    auto same = retinue::published<retinue::Queue<int>>("name", 0ns);
    same.put(1);
    EXPECT_EQ(queue.size(), 1u);
    EXPECT_THROW(retinue::published<retinue::Queue<float>>("name", 0ns), retinue::UsageError);
  }
  EXPECT_THROW(retinue::published<retinue::Queue<int>>("name", 1ms), retinue::TimeoutError);
  for (int i = 0; i < 1000; ++i) {  // Names of those that are gone are used again.
    const retinue::Queue<int> queue({.capacity = 1});
    retinue::publish("name " + std::to_string(i), queue);
  }
}

}  // namespace
