#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective/call/call.h"
#include "collective/communicator/message_calls.h"
#include "collective/communicator/one_caller.h"
#include "collective/meeting.h"
#include "collective/session/session.h"
#include "os/machine/cpus.h"
#include "os/sync/cpu_relax.h"
#include "support/fork_shared.h"
#include "support/ranks.h"

/// Members that park while others post, with nothing but the post's ring to wake them.
namespace retinue::test {

/// Longer than any test may take.
constexpr std::chrono::hours kForever{24};

/// From nothing to some microseconds: about what a member needs from its arrival to its sleep, and more.
inline void pause_a_moment(std::mt19937& random) {
  const unsigned bound = random() % 2 == 0 ? 32 : 512;
  for (unsigned left = random() % bound; left > 0; --left) cpu_relax();
}

/// Puts this process on a CPU of its own, while there are some, so that members run at once although they wake each
/// other.
inline void keep_to_one_cpu(int rank) {
  const std::vector<int> cpus = allowed_cpus();
  set_allowed_cpus({cpus[static_cast<std::size_t>(rank) % cpus.size()]});
}

/// What became of a member's waits.
struct Parks {
  std::int64_t posts = 0;   ///< Of the group.
  std::int64_t rings = 0;   ///< Posts that found this member parked, or about to: each has to wake it.
  std::int64_t sleeps = 0;  ///< Times that the kernel took it off its CPU because it slept.
};

inline std::int64_t sleeps_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// One member of a group whose members post and wait for each other in all the ways that there are.
class ParkingMember {
 public:
  ParkingMember(const JobGroup& group, Meeting meeting)
      : session_(group, {.timeout = kForever, .waiting = Waiting::kPolite}),
        engine_(session_, callers_),
        messages_(session_, engine_),
        meeting_(meeting),
        own_(static_cast<unsigned>(group.rank)) {
    session_.waiter().set_look_up(kForever);
    keep_to_one_cpu(group.rank);
    begin_call();
  }

  Parks run() {
    const std::int64_t sleeps = sleeps_of_this_thread();
    const std::uint32_t rings = bell();
    while (meeting_.meet()) {
      pause_a_moment(own_);
      const unsigned way = common_() % 4;
      if (way == 0) {
        begin_call();
      } else if (way == 1) {
        exchange(meeting_.posts());
      } else {
        ++step_;
        if (makes_all_wait(meeting_.posts())) await_parked_others();
        session_.post(step_);
        session_.has_posted({0, session_.size()}, step_);
      }
    }
    return {.posts = meeting_.posts(), .rings = bell() - rings, .sleeps = sleeps_of_this_thread() - sleeps};
  }

 private:
  /// How often somebody rang.
  std::uint32_t bell() const { return session_.board().member(session_.rank()).bell.load(std::memory_order_relaxed); }

  /// In turn, now and then: by chance alone members may hardly ever sleep on a machine that does much else.
  bool makes_all_wait(int post) const { return post % 8 == 0 && post / 8 % session_.size() == session_.rank(); }

  /// Waits until the others, who wait for this member, are about to sleep or do.
  void await_parked_others() const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int rank = 0; rank < session_.size(); ++rank)
      while (rank != session_.rank() &&
             session_.board().member(rank).state.load(std::memory_order_relaxed) != MemberState::kParked) {
        sched_yield();
        if (std::chrono::steady_clock::now() > end)
          throw std::runtime_error("rank " + std::to_string(rank) + " waits and doesn't sleep");
      }
  }

  void begin_call() {
    const CollectiveCall barrier = CollectiveCall::barrier();
    const Call call = checked_call(barrier, session_.rank(), session_.size(), CallSite());
    session_.publish(call);
    session_.await_arrival(call);
    step_ = 0;
  }

  /// A message to the next member, and one from the member before.
  void exchange(int value) {
    const int size = session_.size();
    messages_.send(std::as_bytes(std::span(&value, 1)), (session_.rank() + 1) % size, 0, CallSite());
    int received = -1;
    const Bytes buffer = std::as_writable_bytes(std::span(&received, 1));
    messages_.receive(buffer, nullptr, (session_.rank() + size - 1) % size, 0, CallSite());
    EXPECT_EQ(received, value);
  }

  Session session_;
  OneCaller callers_{"a test's group"};
  OperationEngine engine_;
  MessageCalls messages_;
  Meeting meeting_;
  std::mt19937 common_{1};
  std::mt19937 own_;
  std::uint64_t step_ = 0;
};

/// Fails if of `ranks` members one is not woken, or if they hardly ever have to be.
inline Parks check_that_no_wake_up_is_lost(int ranks, Posts posts) {
  const ForkShared<Meeting::Place> places(static_cast<std::size_t>(ranks));
  const ForkShared<Parks> parks(static_cast<std::size_t>(ranks));
  run_ranks(ranks,
            [&](const JobGroup& group) {
              Meeting meeting(places.get(), group.rank, ranks, posts);
              parks.get()[group.rank] = ParkingMember(group, meeting).run();
            },
            {.timeout = posts.duration + std::chrono::minutes(2)});
  Parks sum;
  for (int rank = 0; rank < ranks; ++rank) {
    sum.posts = parks.get()[rank].posts;
    sum.rings += parks.get()[rank].rings;
    sum.sleeps += parks.get()[rank].sleeps;
  }
  std::cout << ranks << " members, " << sum.posts << " posts of each, " << sum.rings
            << " of them to one that was parked, " << sum.sleeps << " sleeps\n";
  // Of each sixteen posts one waits until all others are parked.
  EXPECT_GE(sum.rings, sum.posts * (ranks - 1) / 20);
  return sum;
}

}  // namespace retinue::test
