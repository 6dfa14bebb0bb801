// Ranks that meet at a store, whatever the place.
#include "retinue/launch/store_exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "os/process/process_look.h"
#include "retinue/base/error.h"
#include "retinue/launch/join_group.h"
#include "retinue/store/file_store.h"
#include "retinue/store/hash_store.h"
#include "store/places.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

TEST(StoreExchange, GathersWhatAllGive) {
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      StoreExchange exchange({.store = store, .name = "threads", .rank = rank, .size = 3});
      for (int step = 0; step < 5; ++step) {
        const int own = 10 * step + rank;
        int all[3] = {};
        exchange.all_gather(&own, all, sizeof own);
        for (int other = 0; other < 3; ++other) EXPECT_EQ(all[other], 10 * step + other);
      }
      char text[2] = {};
      char both[6] = {};
      const std::string why = usage_error_of([&] { exchange.all_gather(text, both, rank == 2 ? 1 : 2); });
      EXPECT_TRUE(says(why, "rank 2 sent 1 bytes, but rank 0 sent 2")) << why;
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_TRUE(says(usage_error_of([] { StoreExchange({}); }), "no store was given"));
  EXPECT_TRUE(says(usage_error_of([&] { StoreExchange({.store = store, .rank = 2, .size = 2}); }), "rank 2 of 2"));
}

TEST(StoreExchange, CountsTheMeetingsOfAName) {
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      for (std::int64_t time = 1; time <= 3; ++time) {
        StoreExchange exchange({.store = store, .name = "again", .rank = rank, .size = 2});
        EXPECT_EQ(exchange.number(), time);
        std::int64_t all[2] = {};
        exchange.all_gather(&time, all, sizeof time);
        EXPECT_EQ(all[0], all[1]);
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(StoreExchange({.store = store, .name = "another"}).number(), 1);
}

/// Between its two steps at the store, where it says which meeting it is in.
TEST(StoreExchange, RefusesARankWhoseOtherProcessStandsStill) {
  const auto store = std::make_shared<HashStore>();
  const pid_t pid = fork();
  if (pid == 0) {
    pause();
    _exit(0);
  }
  store->set("retinue/twice/process of 0", fmt::format("{}\n0\n{}", identity_of_process(pid), host_of_this_process()));
  const std::string why = usage_error_of(
      [&] { StoreExchange({.store = store, .name = "twice", .size = 2, .deadline = Deadline::after(60s)}); });
  EXPECT_TRUE(says(why, fmt::format("process {} has joined as rank 0, and so has process {}", pid, getpid()))) << why;
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

/// Calls a function before this rank counts itself in.
class StoreWithPause final : public Store {
 public:
  StoreWithPause(std::shared_ptr<Store> store, std::function<void()> pause)
      : Store(60s), store_(std::move(store)), pause_(std::move(pause)) {}
  std::string name() const override { return store_->name(); }

 private:
  void do_set(std::string_view key, std::string_view value, Deadline deadline) override {
    store_->set(key, value, deadline);
  }
  std::vector<std::string> do_multi_get(const std::vector<std::string>& keys, Deadline deadline) override {
    return store_->multi_get(keys, deadline);
  }
  std::int64_t do_add(std::string_view key, std::int64_t delta, Deadline deadline) override {
    if (delta == 1) pause_();
    return store_->add(key, delta, deadline);
  }
  std::string do_compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                             Deadline deadline) override {
    return store_->compare_set(key, expected, desired, deadline);
  }
  void do_wait(const std::vector<std::string>& keys, Deadline deadline) override { store_->wait(keys, deadline); }
  bool do_check(const std::vector<std::string>& keys, Deadline deadline) override {
    return store_->check(keys, deadline);
  }
  bool do_delete_key(std::string_view key, Deadline deadline) override { return store_->delete_key(key, deadline); }
  std::int64_t do_num_keys(Deadline deadline) override { return store_->num_keys(deadline); }

  std::shared_ptr<Store> store_;
  std::function<void()> pause_;
};

/// As above: the process that stood still, and rank 0, who waits for it, learn it too. Then they meet.
TEST(StoreExchange, TellsARankThatStoodStillOfAnotherProcessOfThatRank) {
  const TemporaryFolder folder;
  const auto store = std::make_shared<FileStore>(FileStoreOptions{.path = folder.file("store")});
  const std::string expected = fmt::format("process {} has joined as rank 1, and so has process ", getpid());
  // A fork beside other threads may find the sanitizer's heap locked for ever: it is made before them.
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t twin = fork();
  if (twin == 0) {
    close(go[1]);
    char end = 0;
    if (read(go[0], &end, 1) != 0) _exit(2);
    const std::string why = usage_error_of([&] {
      StoreExchange({.store = std::make_shared<FileStore>(FileStoreOptions{.path = folder.file("store")}),
                     .name = "twice",
                     .rank = 1,
                     .size = 2,
                     .deadline = Deadline::after(60s)});
    });
    _exit(says(why, expected) ? 0 : 1);
  }
  close(go[0]);
  std::thread rank0([&] {
    StoreExchange exchange({.store = store, .name = "twice", .size = 2, .deadline = Deadline::after(60s)});
    char own = 0;
    char all[2];
    const std::string why = usage_error_of([&] { exchange.all_gather(&own, all, 1); });
    EXPECT_TRUE(says(why, expected)) << why;
  });
  const auto twin_comes = [&] {
    close(go[1]);
    int status = -1;
    EXPECT_EQ(waitpid(twin, &status, 0), twin);
    EXPECT_EQ(status, 0);
  };
  const std::string why = usage_error_of([&] {
    StoreExchange({.store = std::make_shared<StoreWithPause>(store, twin_comes),
                   .name = "twice",
                   .rank = 1,
                   .size = 2,
                   .deadline = Deadline::after(60s)});
  });
  EXPECT_TRUE(says(why, expected)) << why;
  rank0.join();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      StoreExchange exchange({.store = store, .name = "twice", .rank = rank, .size = 2});
      char all[2] = {};
      exchange.all_gather("ab" + rank, all, 1);
      EXPECT_EQ(std::string(all, 2), "ab");
    });
  for (std::thread& rank : ranks) rank.join();
}

/// And not that the others, who had no time to answer, did not come.
TEST(StoreExchange, SaysThatRank0GotOnTooLate) {
  const auto store = std::make_shared<HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 3; ++rank)
    ranks.emplace_back([&, rank] {
      const Deadline deadline = Deadline::after(3s);
      try {
        StoreExchange exchange(
            {.store = store, .name = "slow", .rank = rank, .size = 3, .deadline = deadline, .call = "it"});
        char own = 0;
        char all[3];
        if (rank == 0) {
          store->wait({"retinue/slow/1/0/1", "retinue/slow/1/0/2"}, deadline);
          std::this_thread::sleep_for(deadline.left() + 1ms);
        }
        exchange.all_gather(&own, all, 1);
        if (rank > 0) store->wait({"retinue/slow/1/1/all"}, Deadline::after(60s));
        exchange.all_gather(&own, all, 1);
        ADD_FAILURE() << "the time was over";
      } catch (const TimeoutError& error) {
        EXPECT_TRUE(says(error.what(), "rank 0 of 3 continued in it, at HashStore, only after the timeout"))
            << error.what();
      }
    });
  for (std::thread& rank : ranks) rank.join();
}

/// Rank 2, which counts others, has told it for rank 1, which has come and not answered yet. Rank 0's store ends with
/// rank 0.
TEST(StoreExchange, Rank0WaitsUntilAllHaveReadOfAnotherWorldSize) {
  const auto store = std::make_shared<HashStore>();
  StoreExchange exchange({.store = store, .name = "sizes", .size = 3});
  for (const char* key : {"retinue/sizes/1/0/1", "retinue/sizes/1/0/2"}) store->set(key, "uother sizes");
  store->set("retinue/sizes/1/0/2 has read", "");
  std::thread rank1([&] {
    store->wait({"retinue/sizes/1/0/all"}, Deadline::after(60s));
    store->set("retinue/sizes/1/0/1 has read", "");
  });
  char own = 0;
  char all[3];
  EXPECT_EQ(usage_error_of([&] { exchange.all_gather(&own, all, 1); }), "other sizes");
  EXPECT_TRUE(store->check({"retinue/sizes/1/0/1 has read"}));
  rank1.join();
}

/// Which another rank of that one's host has found, before rank 0 came.
TEST(StoreExchange, Rank0TakesALossThatAnotherHasSeen) {
  const auto store = std::make_shared<HashStore>();
  StoreExchange exchange({.store = store, .name = "two hosts", .size = 3});
  store->set("retinue/two hosts/1/0/1", "v.");
  store->set("retinue/two hosts/1/0/all", "l2 rank 2 has died");
  store->set("retinue/two hosts/1/0/1 has read", "");
  char own = 0;
  char all[3];
  try {
    exchange.all_gather(&own, all, 1);
    ADD_FAILURE() << "rank 2 is dead";
  } catch (const PeerLost& error) {
    EXPECT_EQ(error.ranks(), std::vector<int>{2});
    EXPECT_STREQ(error.what(), "rank 2 has died");
  }
}

/// Whom the others leave it to look at those that are there has not come.
TEST(StoreExchange, EndsWhereARankDiesBeforeRank0Comes) {
  const TemporaryFolder folder;
  const FileStoreOptions place{.path = folder.file("store")};
  const auto meet = [&](int rank) {
    StoreExchange exchange({.store = std::make_shared<FileStore>(place), .name = "dead", .rank = rank, .size = 4});
    char own = 0;
    char all[4];
    exchange.all_gather(&own, all, 1);
  };
  const pid_t pid = fork();
  if (pid == 0) {
    meet(2);
    _exit(0);
  }
  FileStore looks(place);
  looks.wait({"retinue/dead/1/size", "retinue/dead/1/0/2"});
  std::vector<std::thread> ranks;
  for (const int rank : {1, 3})
    ranks.emplace_back([&, rank] {
      try {
        meet(rank);
        ADD_FAILURE() << "rank 2 is dead";
      } catch (const PeerLost& error) {
        EXPECT_EQ(error.ranks(), std::vector<int>{2});
      }
    });
  looks.wait({"retinue/dead/1/0/1", "retinue/dead/1/0/3"});
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace retinue::test
