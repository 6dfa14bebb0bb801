#include <gtest/gtest.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "collective/call/call.h"
#include "collective/session/session.h"
#include "ipc/memory/process_table.h"
#include "os/machine/cpus.h"
#include "retinue/collective/communicator.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

std::chrono::nanoseconds cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

/// Part of the time in which rank 0 waits, for a rank that is late time and again, for which it uses a CPU.
double cpu_share(const JobGroup& group, Waiting waiting) {
  Communicator communicator(group, {.waiting = waiting});
  std::chrono::duration<double> used{};
  std::chrono::duration<double> waited{};
  for (int i = 0; i < 40; ++i) {
    communicator.barrier();
    if (group.rank == 1) std::this_thread::sleep_for(3ms);
    const auto cpu_before = cpu_time();
    const auto before = std::chrono::steady_clock::now();
    communicator.barrier();
    used += cpu_time() - cpu_before;
    waited += std::chrono::steady_clock::now() - before;
  }
  return used / waited;
}

TEST(Waiting, IsAsleepWherePolite) {
  run_ranks(2, [](const JobGroup& group) {
    const double share = cpu_share(group, Waiting::kPolite);
    if (group.rank == 0) {
      EXPECT_LT(share, 0.25);  // Who spins for 2 ms comes to two thirds.
    }
  });
}

TEST(Waiting, MayDifferBetweenMembers) {
  for (const int ranks : {2, 3, 5})
    run_ranks(ranks, [ranks](const JobGroup& group) {
      constexpr Waiting kAll[] = {Waiting::kPolite, Waiting::kLatency, Waiting::kBalanced};
      Communicator communicator(group, {.waiting = kAll[group.rank % 3]});
      for (int i = 0; i < 200; ++i) {
        int sum = group.rank + i;
        communicator.all_reduce(std::span(&sum, 1));
        ASSERT_EQ(sum, ranks * (ranks - 1) / 2 + ranks * i);
      }
    });
}

constexpr Waiting kPolicies[] = {Waiting::kPolite, Waiting::kBalanced, Waiting::kLatency};

/// What the kernel says of another rank's main thread.
struct Used {
  std::chrono::nanoseconds cpu{};
  long sleeps = 0;
};

Used used_by(const JobGroup& group, int rank) {
  const int pid = process_slot(*group.memory, group.process_slots[static_cast<std::size_t>(rank)]).pid.load();
  const std::string folder = "/proc/" + std::to_string(pid);
  Used used;
  std::int64_t nanoseconds = 0;
  std::ifstream(folder + "/schedstat") >> nanoseconds;
  used.cpu = std::chrono::nanoseconds(nanoseconds);
  std::ifstream status(folder + "/status");
  for (std::string word; status >> word;)
    if (word == "voluntary_ctxt_switches:") status >> used.sleeps;
  return used;
}

/// Rank 0 waits for rank 1, which stays away while the other wakes by itself time and again.
template <typename Wait>
void check_that_idle_ranks_sleep(Waiting waiting, Wait wait) {
  constexpr long kLookUps = 12;
  run_ranks(2, [&](const JobGroup& group) {
    Communicator communicator(group, {.waiting = waiting});
    if (group.rank == 1) {
      const long first = used_by(group, 0).sleeps + 2;  // By then it has spun enough.
      ASSERT_TRUE(wait_until([&] { return used_by(group, 0).sleeps >= first; }));
      const Used before = used_by(group, 0);
      ASSERT_TRUE(wait_until([&] { return used_by(group, 0).sleeps >= before.sleeps + kLookUps; }));
      const Used after = used_by(group, 0);
      // Some 50 us to look up, which happens every 50 ms.
      EXPECT_LT((after.cpu - before.cpu) / (after.sleeps - before.sleeps), 5ms);
    }
    wait(communicator);
  });
}

TEST(Waiting, UsesNoCpuWhereARankIsIdle) {
  for (const Waiting waiting : kPolicies) {
    SCOPED_TRACE(static_cast<int>(waiting));
    check_that_idle_ranks_sleep(waiting, [](Communicator& communicator) { communicator.barrier(); });
    check_that_idle_ranks_sleep(waiting, [](Communicator& communicator) {
      int request = 7;
      if (communicator.rank() == 1) communicator.send(std::span(&request, 1), 0);
      if (communicator.rank() == 0) communicator.recv(std::span(&request, 1), kAnySource);
    });
  }
}

/// Measures a member's wait from its first look until it sleeps for the first time.
class Looks final : public Background {
 public:
  explicit Looks(const Member& own) : own_(own) {}
  void advance() override {
    if (sleeps_) return;
    const auto now = std::chrono::steady_clock::now();
    if (count == 0) first_ = now;
    sleeps_ = own_.state.load(std::memory_order_relaxed) == MemberState::kParked;
    if (sleeps_)
      time = now - first_;
    else
      ++count;
  }
  std::uint64_t moves() const override { return 0; }
  long count = 0;
  std::chrono::nanoseconds time{};

 private:
  const Member& own_;
  std::chrono::steady_clock::time_point first_;
  bool sleeps_ = false;
};

void make_barrier(Session& session) {
  const CollectiveCall barrier = CollectiveCall::barrier();
  const Call call = checked_call(barrier, session.rank(), session.size(), CallSite());
  session.publish(call);
  session.await_arrival(call);
  session.end_call();
}

struct Watched {
  bool is_crowded = false;
  long most_looks = 0;
  std::chrono::nanoseconds shortest = std::chrono::nanoseconds::max();
  std::chrono::nanoseconds longest{};
};

/// Watches several waits of rank 0 for rank 1, which comes only when rank 0 sleeps. None if two ranks share a CPU.
Watched watch_waits(Waiting waiting) {
  const ForkShared<Watched> watched;
  run_ranks(2, [&](const JobGroup& group) {
    const std::vector<int> cpus = allowed_cpus();
    set_allowed_cpus({cpus[static_cast<std::size_t>(group.rank) % cpus.size()]});
    Session session(group, {.waiting = waiting});
    const bool is_first = group.rank == 0;
    if (is_first) watched->is_crowded = session.waiter().is_crowded();
    if (session.waiter().is_crowded()) return;
    const Member& first = session.board().member(0);
    std::optional<Looks> looks;
    for (int round = 0; round < 30; ++round) {
      session.waiter().set_background(&looks.emplace(first));
      if (!is_first) wait_until([&] { return first.state.load() == MemberState::kParked; });
      make_barrier(session);
      if (!is_first) continue;
      watched->most_looks = std::max(watched->most_looks, looks->count);
      watched->shortest = std::min(watched->shortest, looks->time);
      watched->longest = std::max(watched->longest, looks->time);
    }
  });
  return *watched;
}

TEST(Waiting, LooksLongerTheMoreItIsForLatency) {
  const Watched polite = watch_waits(Waiting::kPolite);
  if (polite.is_crowded) GTEST_SKIP() << "needs a CPU for each of two ranks";
  const Watched balanced = watch_waits(Waiting::kBalanced);
  const Watched latency = watch_waits(Waiting::kLatency);
  EXPECT_EQ(polite.most_looks, 1);
  // Another program may take the CPU from any of these waits, which makes it longer and leaves time for fewer looks.
  EXPECT_GT(balanced.most_looks, 1);
  EXPECT_GE(balanced.longest, 50us);
  EXPECT_GT(latency.most_looks, 1);
  EXPECT_GE(latency.longest, 2ms);
  EXPECT_LT(balanced.shortest, latency.longest);
}

/// A program that never sleeps, on this process's CPU, until this ends.
class Hog {
 public:
  Hog() : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) asm volatile("");
  }
  ~Hog() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Hog(const Hog&) = delete;
  Hog& operator=(const Hog&) = delete;

 private:
  pid_t pid_;
};

TEST(Waiting, IsOfACrowdWhereMembersOutnumberTheirCpus) {
  run_ranks(1, [](const JobGroup& group) { EXPECT_FALSE(Communicator(group).is_crowded()); });
  run_ranks(2, [](const JobGroup& group) {
    set_allowed_cpus({allowed_cpus()[0]});
    EXPECT_TRUE(Communicator(group).is_crowded());
  });
}

TEST(Waiting, SleepsInsteadOfYieldingWhereAnUnrelatedProgramTakesTheCpu) {
  constexpr std::uint32_t kCalls = 400;
  const ForkShared<std::atomic<std::uint32_t>> rings;
  run_ranks(2, [&](const JobGroup& group) {
    set_allowed_cpus({allowed_cpus()[0]});
    Session session(group, {.waiting = Waiting::kLatency});
    ASSERT_TRUE(session.waiter().is_crowded());
    std::optional<Hog> hog;
    if (group.rank == 0) hog.emplace();
    const auto bell = [&] { return session.board().member(group.rank).bell.load(std::memory_order_relaxed); };
    const std::uint32_t before = bell();
    for (std::uint32_t i = 0; i < kCalls; ++i) make_barrier(session);
    *rings += bell() - before;
  });
  // In each call one waits for the other, and is rung if it is parked. By its policy alone it isn't parked before 20
  // ms, which is longer than the turn of one other program.
  EXPECT_GT(*rings, kCalls / 4);
}

}  // namespace
}  // namespace retinue::test
