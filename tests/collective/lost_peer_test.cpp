#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "collective/exchange_model.h"
#include "ipc/memory/process_table.h"
#include "os/process/process_look.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

/// Calls until the group fails; expects PeerLost that names `lost`, and the same from then on. Returns its message.
template <typename CallOnce>
std::string call_until_lost(Communicator& communicator, const std::vector<int>& lost, CallOnce call_once) {
  std::string message;
  try {
    for (;;) call_once();
  } catch (const PeerLost& error) {
    message = error.what();
    EXPECT_EQ(error.ranks(), lost) << message;
  }
  EXPECT_THROW(communicator.barrier(), PeerLost);
  for (const int rank : lost)
    EXPECT_NE(message.find("rank " + std::to_string(rank) + " (pid "), std::string::npos) << message;
  return message;
}

/// Waits until the rank's process has told how it ended. Messages wait for that only 4 ms, too short on a busy machine.
void wait_until_finished(const JobGroup& group, int rank) {
  const ProcessSlot& slot = process_slot(*group.memory, group.process_slots[static_cast<std::size_t>(rank)]);
  EXPECT_TRUE(wait_until([&] { return !slot.is_alive(); }));
}

/// Whether the rank's main thread sleeps in the kernel.
bool sleeps(const JobGroup& group, int rank) {
  const int pid = process_slot(*group.memory, group.process_slots[static_cast<std::size_t>(rank)]).pid.load();
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(stat, line);
  return line.find(") S ") != std::string::npos;
}

class LostPeer : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, LostPeer, testing::Values(2, 3, 5));

TEST_P(LostPeer, EndsABarrierOfTheOthers) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              Communicator communicator(group);
              for (int i = 0; i < 3; ++i) communicator.barrier();
              if (group.rank == 1) raise(SIGKILL);
              const std::string message = call_until_lost(communicator, {1}, [&] { communicator.barrier(); });
              EXPECT_NE(message.find("died (signal 9, SIGKILL)"), std::string::npos) << message;
              EXPECT_NE(message.find("after 3 barriers, the last at "), std::string::npos) << message;
              EXPECT_NE(message.find("waits in its 4th call, barrier, at "), std::string::npos) << message;
              EXPECT_NE(message.find("lost_peer_test.cpp:"), std::string::npos) << message;
            },
            {.killed = {1}});
}

/// Its memory is taken down page by page, for tens of milliseconds, before anybody can reap it.
TEST(LostPeers, AreSaidHowTheyDiedWhereTheirMemoryIsLarge) {
  run_ranks(2,
            [](const JobGroup& group) {
              Communicator communicator(group);
              if (group.rank == 1) {
                constexpr std::size_t kBytes = std::size_t{512} << 20;
                void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                madvise(memory, kBytes, MADV_NOHUGEPAGE);
                std::memset(memory, 1, kBytes);
              }
              communicator.barrier();
              if (group.rank == 1) raise(SIGKILL);
              const std::string message = call_until_lost(communicator, {1}, [&] { communicator.barrier(); });
              EXPECT_NE(message.find("died (signal 9, SIGKILL)"), std::string::npos) << message;
            },
            {.killed = {1}});
}

TEST_P(LostPeer, EndsParkedWaits) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              Communicator communicator(group);
              if (group.rank == 1) {
                for (int rank = 0; rank < communicator.size(); ++rank)
                  while (rank != 1 && !sleeps(group, rank)) sched_yield();
                raise(SIGKILL);
              }
              const std::string message = call_until_lost(communicator, {1}, [&] { communicator.barrier(); });
              EXPECT_NE(message.find("before its first call"), std::string::npos) << message;
            },
            {.killed = {1}});
}

TEST_P(LostPeer, EndsEachKindOfCollectiveInFullSwing) {
  for (const CollectiveKind kind : kDataKinds)
    for (const Place place : {Place::kPrivate, Place::kJob}) {
      SCOPED_TRACE(testing::Message() << name_of(kind) << ", place " << static_cast<int>(place));
      run_ranks(GetParam(),
                [&](const JobGroup& group) {
                  Communicator communicator(group);
                  constexpr std::size_t kCount = 100'000;
                  const auto size = static_cast<std::size_t>(communicator.size());
                  const PlacedBuffer input(group, size * kCount * sizeof(float), place);
                  const PlacedBuffer output(group, size * kCount * sizeof(float), place);
                  const bool in_place = kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kBroadcast;
                  std::atomic<int> calls = 0;
                  std::thread killer;
                  if (group.rank == 1)
                    killer = std::thread([&calls] {
                      while (calls < 20) sched_yield();
                      kill(getpid(), SIGKILL);
                    });
                  call_until_lost(communicator, {1}, [&] {
                    const ExchangeCase c{.kind = kind, .count = kCount, .root = calls % communicator.size()};
                    communicator.run(call_of<float>(c, input.data(), in_place ? input.data() : output.data()));
                    ++calls;
                  });
                },
                {.killed = {1}});
    }
}

TEST_P(LostPeer, EndsTheOpeningOfTheGroup) {
  run_ranks(GetParam(),
            [](const JobGroup& group) {
              if (group.rank == 1) raise(SIGKILL);
              try {
                const Communicator communicator(group);
                ADD_FAILURE() << "the group opened without rank 1";
              } catch (const PeerLost& error) {
                EXPECT_EQ(error.ranks(), std::vector<int>{1}) << error.what();
              }
            },
            {.killed = {1}});
}

TEST_P(LostPeer, IncludesOnesThatFinished) {
  run_ranks(GetParam(), [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    if (group.rank == 1) return;
    wait_until_finished(group, 1);
    const std::string message = call_until_lost(communicator, {1}, [&] { communicator.barrier(); });
    EXPECT_NE(message.find("finished normally after 1 barrier, the last at "), std::string::npos) << message;
  });
}

TEST(LostPeers, AreSaidToHaveMadeCallsWhereTheseWereOfSeveralKinds) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    float x = 1;
    communicator.barrier();
    communicator.all_reduce(std::span(&x, 1));
    if (group.rank == 1) return;
    wait_until_finished(group, 1);
    const std::string message = call_until_lost(communicator, {1}, [&] { communicator.barrier(); });
    EXPECT_NE(message.find("finished normally after 2 calls, the last all_reduce(fp32, 1, sum) at "), std::string::npos)
        << message;
  });
}

TEST(LostPeers, AreSaidToHaveMadeCallsOfAKind) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    float x = 1;
    for (int i = 0; i < 3; ++i) communicator.all_reduce(std::span(&x, 1));
    if (group.rank == 1) return;
    wait_until_finished(group, 1);
    const std::string message = call_until_lost(communicator, {1}, [&] { communicator.barrier(); });
    EXPECT_NE(message.find("finished normally after 3 all_reduces, the last (fp32, 1, sum) at "), std::string::npos)
        << message;
  });
}

TEST(LostPeers, EndTheWaitHoweverManyTheyAre) {
  run_ranks(4,
            [](const JobGroup& group) {
              Communicator communicator(group);
              communicator.barrier();
              if (group.rank == 1 || group.rank == 2) raise(SIGKILL);
              try {
                for (;;) communicator.barrier();
              } catch (const PeerLost& error) {
                ASSERT_FALSE(error.ranks().empty());
                for (const int rank : error.ranks()) EXPECT_TRUE(rank == 1 || rank == 2) << error.what();
              }
            },
            {.killed = {1, 2}});
}

/// Another group of the same members, to meet in when the first is out of use.
JobGroup other_group(const JobGroup& group) {
  JobGroup other = group;
  other.name = "other group";
  return other;
}

TEST(Timeout, NamesWhoIsMissingAndPoisonsTheGroup) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    Communicator other(other_group(group));
    communicator.barrier();
    if (group.rank == 1) {
      other.barrier();
      EXPECT_THROW(communicator.barrier(), TimeoutError);
      return;
    }
    communicator.set_timeout(std::chrono::milliseconds(100));
    std::string message;
    try {
      communicator.barrier();
      ADD_FAILURE() << "the barrier ended without rank 1";
    } catch (const TimeoutError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find("missing: rank 1"), std::string::npos) << message;
    EXPECT_NE(message.find("after 1 barrier, the last at"), std::string::npos) << message;
    EXPECT_THROW(communicator.barrier(), TimeoutError);
    other.barrier();
  });
}

TEST(Timeout, SaysThatALateRankIsStopped) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    communicator.barrier();
    if (group.rank == 1) {
      raise(SIGSTOP);
      EXPECT_THROW(communicator.barrier(), TimeoutError);
      return;
    }
    const pid_t late = process_slot(*group.memory, group.process_slots[1]).pid.load();
    EXPECT_TRUE(wait_until([&] { return standstill_of(late).find("stopped") != std::string::npos; }));
    communicator.set_timeout(std::chrono::milliseconds(20));
    std::string message;
    try {
      communicator.barrier();
      ADD_FAILURE() << "the barrier ended without rank 1";
    } catch (const TimeoutError& error) {
      message = error.what();
    }
    const std::string pid = std::to_string(late);
    EXPECT_NE(message.find("missing: rank 1 (pid " + pid + "), seen after 1 barrier"), std::string::npos) << message;
    EXPECT_NE(message.find(", which is stopped (SIGSTOP or the like): kill -CONT " + pid + " continues it"),
              std::string::npos)
        << message;
    kill(late, SIGCONT);
  });
}

TEST(Timeout, EndsTheOpeningOfTheGroup) {
  run_ranks(2, [](const JobGroup& group) {
    if (group.rank == 0) {
      EXPECT_THROW(Communicator(group, {.timeout = std::chrono::milliseconds(50)}), TimeoutError);
    }
    const Communicator other(other_group(group));  // Rank 1 comes straight here and waits for rank 0.
  });
}

}  // namespace
}  // namespace retinue::test
