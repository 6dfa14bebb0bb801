#pragma once

// The sources are compiled here once more, with points in them. So this is for one source of a test.
#define RETINUE_CRASH_POINTS
#include "collective/algorithms/coalesced.cpp"              // NOLINT(bugprone-suspicious-include)
#include "collective/algorithms/exchange.cpp"               // NOLINT(bugprone-suspicious-include)
#include "collective/algorithms/reduce_in_slices.cpp"       // NOLINT(bugprone-suspicious-include)
#include "collective/algorithms/take_in_arrival_order.cpp"  // NOLINT(bugprone-suspicious-include)
#include "collective/board/channel.cpp"                     // NOLINT(bugprone-suspicious-include)
#include "collective/board/relay.cpp"                       // NOLINT(bugprone-suspicious-include)
#include "collective/board/rendezvous.cpp"                  // NOLINT(bugprone-suspicious-include)
#include "collective/communicator/begun_collectives.cpp"    // NOLINT(bugprone-suspicious-include)
#include "collective/communicator/communicator.cpp"         // NOLINT(bugprone-suspicious-include)
#include "collective/messages/message_receives.cpp"         // NOLINT(bugprone-suspicious-include)
#include "collective/messages/messages.cpp"                 // NOLINT(bugprone-suspicious-include)
#include "collective/session/session.cpp"                   // NOLINT(bugprone-suspicious-include)
#include "collective/session/session_arrival.cpp"           // NOLINT(bugprone-suspicious-include)
#include "collective/session/session_buffers.cpp"           // NOLINT(bugprone-suspicious-include)
#include "collective/session/session_failures.cpp"          // NOLINT(bugprone-suspicious-include)

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "collective/step_scenes.h"
#include "collective/step_scenes_of_lists.h"
#include "support/fork_shared.h"
#include "support/ranks.h"

/// A rank is killed, or stopped for a while, at each step of each kind of collective and message: the others get
/// PeerLost, or the right data.
namespace retinue {
namespace {

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

struct NamedScene {
  const char* name;
  void (*run)(const Scene& scene);
};

constexpr NamedScene kScenes[] = {{"barrier", barriers},
                                  {"all_reduce", all_reduces},
                                  {"coalesced", coalesced},
                                  {"reduce", reduces},
                                  {"function", functions},
                                  {"broadcast", broadcasts},
                                  {"all_gather", all_gathers},
                                  {"all_to_all", all_to_alls},
                                  {"gather", gathers},
                                  {"scatter", scatters},
                                  {"reduce_scatter", reduce_scatters},
                                  {"scan", scans},
                                  {"uneven_all_to_all", uneven_all_to_alls},
                                  {"uneven_others", uneven_others},
                                  {"begun", begun},
                                  {"begun_of_roots", begun_of_roots},
                                  {"message", messages}};
/// Inline, staged, and beyond: direct or chunked, announced or in pieces.
constexpr std::size_t kCounts[] = {2, 1000, 50'000};

enum class Memory { kPrivate, kJob, kMixed };
constexpr const char* kMemoryNames[] = {"private", "job", "mixed"};

struct Case {
  NamedScene scene;
  int ranks;
  int victim;
  std::size_t count;
  Memory memory;
  bool by_relay = false;  ///< Ranks from 1 on are led by that one.
};

/// How many of a case's points are hit: at most, or all.
constexpr long kAll = 1L << 40;

class StepCrash : public testing::Test {
 protected:
  static void at_each_point(const Case& what, int signal, long most) {
    const long all = run(what, signal, 0);
    ASSERT_GT(all, 4);
    const long step = std::max(1L, all / most);
    // In each case others, so that together they are more.
    for (long point = 1 + (static_cast<long>(what.memory) + what.ranks) % step; point <= all; point += step) {
      SCOPED_TRACE(fmt::format("{} of {} elements in {} memory, rank {} of {}, point {} of {}", what.scene.name,
                               what.count, kMemoryNames[static_cast<int>(what.memory)], what.victim, what.ranks, point,
                               all));
      run(what, signal, point);
      if (HasFailure()) return;
    }
  }

  /// Of a scene in a group of `ranks`: by all counts and memories.
  static void at_each_point_of(const NamedScene& scene, int ranks, int victim, int signal, long most) {
    for (const std::size_t count : kCounts)
      for (const Memory memory : {Memory::kPrivate, Memory::kJob, Memory::kMixed}) {
        if (scene.run == barriers && (memory != Memory::kPrivate || count != kCounts[0])) continue;
        at_each_point({scene, ranks, victim, count, memory}, signal, most);
        if (HasFailure()) return;
      }
  }

  static void at_each_point_of_a_relay(int signal, long most) {
    setenv("RETINUE_PATH_TABLE", "one_level=0", 1);
    for (const NamedScene& scene : {NamedScene{"barrier", barriers}, NamedScene{"all_reduce", all_reduces}})
      for (const std::size_t count : kCounts) at_each_point({scene, 3, 1, count, Memory::kJob, true}, signal, most);
    setenv("RETINUE_PATH_TABLE", "default", 1);
  }

 private:
  /// Hits the victim with `signal` at its point number `last`. Returns how many points it passed.
  static long run(const Case& what, int signal, long last) {
    points->passed = 0;
    points->last = last;
    points->signal = signal;
    points->stopped = 0;
    points->victim_is_done = false;
    const bool kills = signal == SIGKILL && last > 0;
    run_ranks(what.ranks, [&](const JobGroup& group) { body(what, group, kills); },
              {.killed = kills ? std::vector<int>{what.victim} : std::vector<int>{}});
    return points->passed;
  }

  /// Wakes the victim whenever it was stopped.
  static void wake_until_done() {
    while (!points->victim_is_done) {
      // Long enough for the others to park.
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      // Over and over: it may be about to stop only.
      if (points->stopped != 0) kill(points->stopped, SIGCONT);
    }
  }

  static void body(const Case& what, const JobGroup& group, bool kills) {
    is_victim = group.rank == what.victim;
    std::thread waker;
    if (group.rank == (what.victim + 1) % what.ranks && points->signal == SIGSTOP) waker = std::thread(wake_until_done);
    const std::size_t room = std::max(Scene::kLeastRoom, what.count * group.process_slots.size());
    const bool in_job = what.memory == Memory::kJob || (what.memory == Memory::kMixed && group.rank % 2 == 0);
    std::vector<float> own(in_job ? 0 : 2 * room);
    float* data = own.data();
    if (in_job) data = group.memory->at<float>(group.memory->allocate(2 * room * sizeof(float)).offset);
    try {
      CommunicatorOptions options;
      if (what.by_relay) options.cache_domain = group.rank == 0 ? 0 : 1;
      Communicator communicator(group, options);
      what.scene.run({communicator, what.count, data, data + room});
    } catch (const PeerLost& error) {
      EXPECT_TRUE(kills) << error.what();
      EXPECT_EQ(error.ranks(), std::vector<int>{what.victim}) << error.what();
    }
    if (is_victim) points->victim_is_done = true;
    if (waker.joinable()) waker.join();
    // Where it came through with fewer points than the run that counted them.
    if (kills && is_victim) kill(getpid(), SIGKILL);
  }
};

/// Each scene in a test of its own.
class StepCrashOfScene : public StepCrash, public testing::WithParamInterface<NamedScene> {};
INSTANTIATE_TEST_SUITE_P(Scenes, StepCrashOfScene, testing::ValuesIn(kScenes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace test
}  // namespace retinue
