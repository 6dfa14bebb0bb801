// A rank is killed, or stopped for a while, at each step of each kind of collective and message: the others get
// PeerLost, or the right data. The sources are compiled here once more, with points in them.
#define RETINUE_CRASH_POINTS
#include "collective/communicator.cpp"      // NOLINT(bugprone-suspicious-include)
#include "collective/exchange.cpp"          // NOLINT(bugprone-suspicious-include)
#include "collective/lane.cpp"              // NOLINT(bugprone-suspicious-include)
#include "collective/message_receives.cpp"  // NOLINT(bugprone-suspicious-include)
#include "collective/messages.cpp"          // NOLINT(bugprone-suspicious-include)
#include "collective/reduce_in_slices.cpp"  // NOLINT(bugprone-suspicious-include)
#include "collective/relay.cpp"             // NOLINT(bugprone-suspicious-include)
#include "collective/session.cpp"           // NOLINT(bugprone-suspicious-include)
#include "collective/session_arrival.cpp"   // NOLINT(bugprone-suspicious-include)
#include "collective/session_failures.cpp"  // NOLINT(bugprone-suspicious-include)

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "support/fork_shared.h"
#include "support/ranks.h"

namespace retinue {
namespace {

constexpr int kVictim = 1;
constexpr int kRanks = 3;

/// Shared by all ranks of all runs.
struct Points {
  std::atomic<long> passed;
  std::atomic<long> last;  ///< At which the victim is hit; 0: none.
  std::atomic<int> signal;
  std::atomic<pid_t> stopped;
  std::atomic<bool> victim_is_done;
};

const test::ForkShared<Points> points;
bool is_victim = false;

}  // namespace

void crash_here() {
  if (!is_victim || points->passed.fetch_add(1) + 1 != points->last.load()) return;
  if (points->signal.load() == SIGSTOP) points->stopped.store(getpid());
  kill(getpid(), points->signal.load());
}

namespace test {
namespace {

/// Calls of one kind; checks what they give.
using Scene = void (*)(Communicator& group, std::size_t count, float* data, float* more);

float value(int rank, std::size_t i, int call) {
  return static_cast<float>(rank + 1) + static_cast<float>(i % 13) + static_cast<float>(call * 3);
}

void fill(Communicator& group, float* data, std::size_t count, int call) {
  for (std::size_t i = 0; i < count; ++i) data[i] = value(group.rank(), i, call);
}

template <typename Wanted>
void check(const float* data, std::size_t count, Wanted wanted) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += data[i] != wanted(i);
  EXPECT_EQ(wrong, 0u);
}

float sum_of_all(std::size_t i, int call) {
  return value(0, i, call) + value(1, i, call) + value(2, i, call);
}

constexpr int kCalls = 2;

void barriers(Communicator& group, std::size_t, float*, float*) {
  for (int call = 0; call < kCalls; ++call) group.barrier();
}

void all_reduces(Communicator& group, std::size_t count, float* data, float*) {
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, count, call);
    group.all_reduce(std::span(data, count));
    check(data, count, [&](std::size_t i) { return sum_of_all(i, call); });
  }
}

void reduces(Communicator& group, std::size_t count, float* data, float* more) {
  for (int root = 0; root < kRanks; ++root) {
    fill(group, data, count, root);
    group.reduce(std::span<const float>(data, count), std::span(more, count), root);
    if (group.rank() == root) check(more, count, [&](std::size_t i) { return sum_of_all(i, root); });
  }
}

void broadcasts(Communicator& group, std::size_t count, float* data, float*) {
  for (int root = 0; root < kRanks; ++root) {
    fill(group, data, count, root);
    group.broadcast(std::span(data, count), root);
    check(data, count, [&](std::size_t i) { return value(root, i, root); });
  }
}

void all_gathers(Communicator& group, std::size_t count, float* data, float* more) {
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, count, call);
    group.all_gather(std::span<const float>(data, count), std::span(more, count * kRanks));
    for (int rank = 0; rank < kRanks; ++rank)
      check(more + static_cast<std::size_t>(rank) * count, count, [&](std::size_t i) { return value(rank, i, call); });
  }
}

void all_to_alls(Communicator& group, std::size_t count, float* data, float* more) {
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, count * kRanks, call);
    group.all_to_all(std::span<const float>(data, count * kRanks), std::span(more, count * kRanks));
    const std::size_t place = static_cast<std::size_t>(group.rank()) * count;
    for (int rank = 0; rank < kRanks; ++rank)
      check(more + static_cast<std::size_t>(rank) * count, count,
            [&](std::size_t i) { return value(rank, place + i, call); });
  }
}

void messages(Communicator& group, std::size_t count, float* data, float* more) {
  const int next = (group.rank() + 1) % kRanks;
  const int previous = (group.rank() + kRanks - 1) % kRanks;
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, count, call);
    group.sendrecv(std::span(data, count), next, std::span(more, count), previous);
    check(more, count, [&](std::size_t i) { return value(previous, i, call); });
  }
}

void gathers(Communicator& group, std::size_t count, float* data, float* more) {
  for (int root = 0; root < kRanks; ++root) {
    fill(group, data, count, root);
    group.gather(std::span<const float>(data, count), std::span(more, count * kRanks), root);
    for (int rank = 0; rank < kRanks && group.rank() == root; ++rank)
      check(more + static_cast<std::size_t>(rank) * count, count, [&](std::size_t i) { return value(rank, i, root); });
  }
}

void scatters(Communicator& group, std::size_t count, float* data, float* more) {
  const std::size_t place = static_cast<std::size_t>(group.rank()) * count;
  for (int root = 0; root < kRanks; ++root) {
    fill(group, data, count * kRanks, root);
    group.scatter(std::span<const float>(data, count * kRanks), std::span(more, count), root);
    check(more, count, [&](std::size_t i) { return value(root, place + i, root); });
  }
}

void reduce_scatters(Communicator& group, std::size_t count, float* data, float* more) {
  const std::size_t place = static_cast<std::size_t>(group.rank()) * count;
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, count * kRanks, call);
    group.reduce_scatter(std::span<const float>(data, count * kRanks), std::span(more, count));
    check(more, count, [&](std::size_t i) { return sum_of_all(place + i, call); });
  }
}

void scans(Communicator& group, std::size_t count, float* data, float* more) {
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, count, call);
    group.scan(std::span<const float>(data, count), std::span(more, count));
    check(more, count, [&](std::size_t i) {
      float sum = 0;
      for (int rank = 0; rank <= group.rank(); ++rank) sum += value(rank, i, call);
      return sum;
    });
  }
}

/// Begun together; once waited for, once asked.
void begun(Communicator& group, std::size_t count, float* data, float* more) {
  for (int call = 0; call < kCalls; ++call) {
    fill(group, data, 2 * count, call);
    const Request sum = group.start(CollectiveCall::all_reduce(data, count, Dtype::kFloat32, ReduceOp::kSum));
    const Request all = group.start(CollectiveCall::all_gather(data + count, more, count * sizeof(float)));
    while (call == 1 && !all.done()) sched_yield();
    all.wait();
    sum.wait();
    check(data, count, [&](std::size_t i) { return sum_of_all(i, call); });
    for (int rank = 0; rank < kRanks; ++rank)
      check(more + static_cast<std::size_t>(rank) * count, count,
            [&](std::size_t i) { return value(rank, count + i, call); });
  }
}

struct NamedScene {
  const char* name;
  Scene run;
};

constexpr NamedScene kScenes[] = {{"barrier", barriers},
                                  {"all_reduce", all_reduces},
                                  {"reduce", reduces},
                                  {"broadcast", broadcasts},
                                  {"all_gather", all_gathers},
                                  {"all_to_all", all_to_alls},
                                  {"gather", gathers},
                                  {"scatter", scatters},
                                  {"reduce_scatter", reduce_scatters},
                                  {"scan", scans},
                                  {"begun", begun},
                                  {"message", messages}};
/// Inline, staged, and beyond: direct or chunked, announced or in pieces.
constexpr std::size_t kCounts[] = {2, 1000, 100'000};

struct Case {
  NamedScene scene;
  std::size_t count;
  bool in_job;
  bool by_relay = false;  ///< The victim leads the last two ranks.
};

class StepCrash : public testing::Test {
 protected:
  /// Hits the victim with `signal` at its point number `last`. Returns how many points it passed.
  static long run(const Case& what, int signal, long last) {
    points->passed = 0;
    points->last = last;
    points->signal = signal;
    points->stopped = 0;
    points->victim_is_done = false;
    const bool kills = signal == SIGKILL && last > 0;
    run_ranks(kRanks, [&](const JobGroup& group) { body(what, group, kills); },
              {.killed = kills ? std::vector<int>{kVictim} : std::vector<int>{}});
    return points->passed;
  }

  static void body(const Case& what, const JobGroup& group, bool kills) {
    is_victim = group.rank == kVictim;
    std::thread waker;
    if (group.rank == 0 && points->signal == SIGSTOP)
      waker = std::thread([&] {
        while (!points->victim_is_done) {
          // Long enough for the others to park.
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
          // Over and over: it may be about to stop only.
          if (points->stopped != 0) kill(points->stopped, SIGCONT);
        }
      });
    const std::size_t bytes = what.count * kRanks * sizeof(float);
    std::vector<float> own(what.in_job ? 0 : 2 * what.count * kRanks);
    float* data = own.data();
    if (what.in_job) data = group.memory->at<float>(group.memory->allocate(2 * bytes).offset);
    try {
      CommunicatorOptions options;
      if (what.by_relay) options.cache_domain = group.rank == 0 ? 0 : 1;
      Communicator communicator(group, options);
      what.scene.run(communicator, what.count, data, data + what.count * kRanks);
    } catch (const PeerLost& error) {
      EXPECT_TRUE(kills) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{kVictim}) << error.what();
    }
    if (is_victim) points->victim_is_done = true;
    if (waker.joinable()) waker.join();
    // Where it came through with fewer points than the run that counted them.
    if (kills && is_victim) kill(getpid(), SIGKILL);
  }

  static void at_each_point(int signal, long most) {
    for (const NamedScene& scene : kScenes)
      for (const std::size_t count : kCounts)
        for (const bool in_job : {false, true}) {
          if (scene.run == barriers && (in_job || count != kCounts[0])) continue;
          at_each_point({scene, count, in_job}, signal, most);
          if (HasFailure()) return;
        }
  }

  static void at_each_point(const Case& what, int signal, long most) {
    const long all = run(what, signal, 0);
    ASSERT_GT(all, 4);
    const long step = std::max(1L, all / most);
    for (long point = 1; point <= all; point += step) {
      SCOPED_TRACE(fmt::format("{} of {} elements in {} memory, point {} of {}", what.scene.name, what.count,
                               what.in_job ? "job" : "private", point, all));
      run(what, signal, point);
      if (HasFailure()) return;
    }
  }
};

TEST_F(StepCrash, OfOneEndsTheOthers) {
  at_each_point(SIGKILL, is_sanitized() ? 3 : 40);
}

TEST_F(StepCrash, DoesNotFollowFromAStop) {
  at_each_point(SIGSTOP, is_sanitized() ? 2 : 12);
}

TEST_F(StepCrash, OfALeaderWhoRelaysEndsTheOthers) {
  setenv("RETINUE_PATH_TABLE", "one_level=0", 1);
  for (const NamedScene& scene : {NamedScene{"barrier", barriers}, NamedScene{"all_reduce", all_reduces}})
    for (const std::size_t count : kCounts)
      at_each_point({.scene = scene, .count = count, .in_job = true, .by_relay = true}, SIGKILL,
                    is_sanitized() ? 3 : 40);
  unsetenv("RETINUE_PATH_TABLE");
}

}  // namespace
}  // namespace test
}  // namespace retinue
