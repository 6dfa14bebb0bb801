#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "retinue/collective/communicator.h"
#include "support/captured_stderr.h"
#include "support/ranks.h"
#include "support/says.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

/// Longer than a deadlock takes to be seen: a wait of that length that isn't one must go on.
constexpr auto kLong = 4s;
constexpr std::chrono::nanoseconds kTimeout = 60s;

JobGroup named(const JobGroup& group, const std::string& name) {
  JobGroup other = group;
  other.name = name;
  return other;
}

/// A process with other threads might make the missing call in one of them; ThreadSanitizer has one in every process.
#if defined(__SANITIZE_THREAD__)
#define RETINUE_NEEDS_ONE_THREAD() GTEST_SKIP() << "ThreadSanitizer's thread makes this uncertain"
#else
#define RETINUE_NEEDS_ONE_THREAD() static_cast<void>(0)
#endif

/// `call` must be found to be a deadlock. Returns its text.
std::string text_of_deadlock(const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "the call ended";
  } catch (const CollectiveMismatch& error) {
    return error.what();
  }
  return "";
}

void expect_all(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << word << " in: " << text;
}

int receive(Communicator& group, int source, int tag) {
  int x = 0;
  group.recv(std::span(&x, 1), source, tag);
  return x;
}

void send(Communicator& group, int destination, int tag) {
  const int x = 7;
  group.send(std::span(&x, 1), destination, tag);
}

TEST(Deadlock, OfMessagesInARingIsThrownByAll) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    const int next = (group.rank + 1) % 3;
    const std::string text = text_of_deadlock([&] { receive(communicator, next, 5 + group.rank); });
    expect_all(
        text,
        {"group \"test group\": deadlock", "rank 0 waits to receive at most 4 bytes from rank 1 (tag 5) at ",
         "rank 1 waits to receive at most 4 bytes from rank 2 (tag 6) at ",
         "rank 2 waits to receive at most 4 bytes from rank 0 (tag 7) at ", "deadlock_test.cpp:", "use sendrecv"});
    EXPECT_EQ(text, text_of_deadlock([&] { communicator.barrier(); }));
  });
}

TEST(Deadlock, OfTwoOfThreeRanksLeavesTheThirdAnError) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    const std::string text = text_of_deadlock([&] {
      if (group.rank == 2)
        communicator.barrier();
      else
        receive(communicator, 1 - group.rank, 1);
    });
    expect_all(text, {"rank 0 waits to receive", "rank 1 waits to receive"});
    EXPECT_EQ(text.find("rank 2"), std::string::npos) << text;
  });
}

TEST(Deadlock, OfLargeSendsToEachOther) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    const std::vector<char> much(1 << 20);
    expect_all(text_of_deadlock([&] { communicator.send(std::span(much), 1 - group.rank); }),
               {"rank 0 waits to send 1048576 bytes to rank 1", "rank 1 waits to send 1048576 bytes to rank 0"});
  });
}

TEST(Deadlock, OfACollectiveAndAMessage) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    const std::string text = text_of_deadlock([&] {
      if (group.rank == 0)
        communicator.barrier();
      else
        receive(communicator, 0, 3);
    });
    expect_all(text, {"rank 0 waits in its 1st call, barrier, at ", ", for rank 1", "rank 1 waits to receive"});
  });
}

TEST(Deadlock, OfTwoGroupsInOppositeOrder) {
  RETINUE_NEEDS_ONE_THREAD();
  for (const bool have_one_name : {false, true})
    run_ranks(2, [&](const JobGroup& group) {
      Communicator a(named(group, "a"), {.timeout = kTimeout});
      Communicator b(named(group, have_one_name ? "a" : "b"), {.timeout = kTimeout});
      Communicator& first = group.rank == 0 ? a : b;
      Communicator& second = group.rank == 0 ? b : a;
      const std::string text = text_of_deadlock([&] { first.barrier(); });
      const std::string in_a = have_one_name ? ", group \"a\", the 1st of that name" : ", group \"a\"";
      const std::string in_b = have_one_name ? ", group \"a\", the 2nd of that name" : ", group \"b\"";
      expect_all(text, {"rank 0 waits in its 1st call, barrier, at ", in_a + "), for rank 1",
                        "rank 1 waits in its 1st call, barrier, at ", in_b + "), for rank 0", "in the same order"});
      text_of_deadlock([&] { second.barrier(); });
    });
}

TEST(Deadlock, OfThreeGroupsOfTwo) {
  RETINUE_NEEDS_ONE_THREAD();
  run_ranks(3, [](const JobGroup& group) {
    // Group i is of ranks i and i + 1; each rank comes to its own group first, and to that of its predecessor then.
    const auto group_of = [&](int i) {
      JobGroup pair = named(group, "pair " + std::to_string(i));
      const int other = (i + 1) % 3;
      pair.process_slots = {group.process_slots[static_cast<std::size_t>(i)],
                            group.process_slots[static_cast<std::size_t>(other)]};
      pair.rank = group.rank == i ? 0 : 1;
      return pair;
    };
    std::vector<Communicator> groups;
    std::vector<int> numbers;
    for (int i = 0; i < 3; ++i) {
      if (group.rank != i && group.rank != (i + 1) % 3) continue;
      groups.emplace_back(group_of(i), CommunicatorOptions{.timeout = kTimeout});
      numbers.push_back(i);
    }
    Communicator& own = groups[numbers[0] == group.rank ? 0 : 1];
    expect_all(text_of_deadlock([&] { own.barrier(); }),
               {" (pid ", ", group \"pair 0\")", ", group \"pair 1\")", ", group \"pair 2\")"});
  });
}

TEST(Deadlock, OfGroupsThatAreMadeInOppositeOrder) {
  RETINUE_NEEDS_ONE_THREAD();
  run_ranks(2, [](const JobGroup& group) {
    const std::string text = text_of_deadlock(
        [&] { const Communicator first(named(group, group.rank == 0 ? "a" : "b"), {.timeout = kTimeout}); });
    expect_all(text, {"rank 0 waits in the opening of the group at ", "rank 1 waits in the opening of the group at ",
                      "deadlock_test.cpp:", ", group \"a\"), for rank 1", ", group \"b\"), for rank 0"});
  });
}

/// Where ThreadSanitizer sees both sides of what members tell each other.
TEST(Deadlock, OfThreadsAsRanks) {
  run_rank_threads(3, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    const int next = (group.rank + 1) % 3;
    expect_all(text_of_deadlock([&] { receive(communicator, next, 5 + group.rank); }),
               {"rank 0 waits to receive", "rank 1 waits to receive", "rank 2 waits to receive"});
  });
}

TEST(Deadlock, OfReceivesFromAnySource) {
  run_ranks(3, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    expect_all(text_of_deadlock([&] { receive(communicator, kAnySource, 1); }),
               {"rank 0 waits to receive", "rank 1 waits to receive", "rank 2 waits to receive", "from any rank"});
  });
}

TEST(Deadlock, OfBegunCollectives) {
  RETINUE_NEEDS_ONE_THREAD();
  run_ranks(2, [](const JobGroup& group) {
    Communicator a(named(group, "a"), {.timeout = kTimeout});
    Communicator b(named(group, "b"), {.timeout = kTimeout});
    const Request request = (group.rank == 0 ? a : b).start(CollectiveCall::barrier());
    expect_all(text_of_deadlock([&] { request.wait(); }), {"waits in barrier, started at "});
  });
}

/// What ranks of a body that must come to its end write to standard error.
std::string stderr_of_sound(int size, const std::function<void(const JobGroup&)>& body) {
  const CapturedStderr captured;
  run_ranks(size, [&](const JobGroup& group) {
    captured.begin();
    body(group);
  });
  return captured.text();
}

TEST(NoDeadlock, WhereAWaitEndsByItself) {
  const std::string text = stderr_of_sound(2, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    int x = 0;
    const Request request = communicator.irecv(std::span(&x, 1), 1 - group.rank, 4);
    if (group.rank == 0) {
      EXPECT_FALSE(request.wait_for(kLong));
      send(communicator, 1, 4);
    } else {
      request.wait();
      send(communicator, 0, 4);
    }
    request.wait();
  });
  EXPECT_EQ(count_of(text, "this looks like a deadlock"), 1) << text;
  expect_all(text, {"rank 0 waits to receive", "rank 1 waits to receive"});
}

TEST(NoDeadlock, WhereAnotherThreadComes) {
  const std::string text = stderr_of_sound(2, [](const JobGroup& group) {
    Communicator a(named(group, "a"), {.timeout = kTimeout});
    Communicator b(named(group, "b"), {.timeout = kTimeout});
    std::thread helper;
    if (group.rank == 0)
      helper = std::thread([&] {
        std::this_thread::sleep_for(kLong);
        b.barrier();
      });
    (group.rank == 0 ? a : b).barrier();
    if (group.rank == 1) a.barrier();
    if (helper.joinable()) helper.join();
  });
  EXPECT_EQ(count_of(text, "this looks like a deadlock"), 1) << text;
}

TEST(NoDeadlock, WhereOneOfManySendersIsBusy) {
  EXPECT_EQ(stderr_of_sound(3,
                            [](const JobGroup& group) {
                              Communicator communicator(group, {.timeout = kTimeout});
                              if (group.rank == 2) {
                                std::this_thread::sleep_for(kLong);
                                send(communicator, 0, 1);
                                return;
                              }
                              if (group.rank == 0) {
                                receive(communicator, kAnySource, 1);
                                send(communicator, 1, 1);
                              } else {
                                receive(communicator, 0, 1);
                              }
                            }),
            "");
}

TEST(NoDeadlock, WhereTheLastOfAChainIsBusy) {
  EXPECT_EQ(stderr_of_sound(3,
                            [](const JobGroup& group) {
                              Communicator a(named(group, "a"), {.timeout = kTimeout});
                              Communicator b(named(group, "b"), {.timeout = kTimeout});
                              if (group.rank == 2) std::this_thread::sleep_for(kLong);
                              if (group.rank == 1) {
                                receive(b, 2, 1);
                                send(a, 0, 1);
                              } else if (group.rank == 0) {
                                receive(a, 1, 1);
                              } else {
                                send(b, 1, 1);
                              }
                              a.barrier();
                            }),
            "");
}

/// Rank 0 waits for rank 1's message, which waits for rank 0 in a collective: one that rank 0 has begun, and that goes
/// on when the busy rank 2 comes to the one before it.
TEST(NoDeadlock, WhereABegunCollectiveGoesOn) {
  EXPECT_EQ(stderr_of_sound(3,
                            [](const JobGroup& group) {
                              Communicator communicator(group, {.timeout = kTimeout});
                              int sum = 1;
                              int sums[3] = {};
                              if (group.rank == 2) std::this_thread::sleep_for(kLong);
                              if (group.rank == 0) {
                                const Request gathered =
                                    communicator.start(CollectiveCall::gather(&sum, sums, sizeof sum, 0));
                                const Request met = communicator.start(CollectiveCall::barrier());
                                receive(communicator, 1, 9);
                                gathered.wait();
                                met.wait();
                                return;
                              }
                              communicator.run(CollectiveCall::gather(&sum, nullptr, sizeof sum, 0));
                              communicator.barrier();
                              if (group.rank == 1) send(communicator, 0, 9);
                            }),
            "");
}

/// As servers wait for requests: nobody is late, and others might interrupt it.
TEST(NoDeadlock, WhereSeveralAreWaitedFor) {
  EXPECT_EQ(stderr_of_sound(2,
                            [](const JobGroup& group) {
                              Communicator communicator(group, {.timeout = kTimeout, .late_after = 1100ms});
                              int x = 0;
                              if (group.rank == 1) {
                                std::this_thread::sleep_for(kLong);
                                send(communicator, 0, 1);
                                return;
                              }
                              const Request requests[] = {communicator.irecv(std::span(&x, 1), 1, 1)};
                              EXPECT_EQ(Request::wait_any(requests), 0u);
                            }),
            "");
}

/// Its message is there, but it can't look for it.
TEST(NoDeadlock, WhereARankIsOnlyStopped) {
  const std::string text = stderr_of_sound(2, [](const JobGroup& group) {
    Communicator communicator(group, {.timeout = kTimeout});
    const pid_t own = getpid();
    std::vector<pid_t> pids(2);
    communicator.all_gather(&own, pids.data(), sizeof own);
    if (group.rank == 1) {
      receive(communicator, 0, 1);
      send(communicator, 0, 2);
      return;
    }
    std::this_thread::sleep_for(2s);  // It has told by then that it waits.
    kill(pids[1], SIGSTOP);
    send(communicator, 1, 1);
    const pid_t waker = fork();
    if (waker == 0) {
      std::this_thread::sleep_for(kLong);
      kill(pids[1], SIGCONT);
      _exit(0);
    }
    receive(communicator, 1, 2);
    waitpid(waker, nullptr, 0);
  });
  EXPECT_EQ(text, "");
}

}  // namespace
}  // namespace retinue::test
