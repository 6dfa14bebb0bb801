// Ranks that end, or leave, in groups that share no memory.
#include "collective/engine/ranks_by_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "collective/engine/late_by_store.h"
#include "os/process/process_look.h"
#include "retinue/store/file_store.h"
#include "retinue/store/hash_store.h"
#include "retinue/store/tcp_store.h"
#include "store/places.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

class RanksByStoreTest : public testing::Test {
 protected:
  std::shared_ptr<Store> store() const {
    return std::make_shared<FileStore>(FileStoreOptions{.path = folder_.file("store")});
  }
  EngineMembers members(int rank, const std::string& host = "this") const {
    return {.name = "tried", .rank = rank, .size = 3, .store = store(), .host = host};
  }
  /// A process that is this rank, and ends after it.
  void be(int rank, const std::function<void(RanksByStore&)>& act) const {
    const pid_t pid = fork();
    if (pid == 0) {
      RanksByStore ranks(members(rank));
      act(ranks);
      _exit(0);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  static LateByStore::Wait wait_of(std::uint64_t sequence) {
    return {.sequence = sequence,
            .since = LateByStore::Clock::now() - 5s,
            .timeout = 30min,
            .own = [] { return "waits"; },
            .history = [](int) { return "once"; }};
  }

  TemporaryFolder folder_;
};

/// The store may have ended with the rank that served it.
TEST_F(RanksByStoreTest, ADeadRankIsKnownWithoutTheStore) {
  const auto store = std::make_shared<HashStore>();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = describe_engine_process("this");
    _exit(write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  std::string text(512, '\0');
  const ssize_t bytes = read(ends[0], text.data(), text.size());
  ASSERT_GT(bytes, 0);
  text.resize(static_cast<std::size_t>(bytes));
  waitpid(pid, nullptr, 0);
  RanksByStore ranks({.name = "known",
                      .rank = 0,
                      .size = 2,
                      .store = store,
                      .host = "this",
                      .processes = {describe_engine_process("this"), text}});
  EXPECT_EQ(ranks.ended_as_known(), std::vector<int>{1});
  EXPECT_EQ(ranks.pid(1), pid);
  for (const int end : ends) close(end);
}

TEST_F(RanksByStoreTest, WhoLeftWithAllItsCallsDoneIsNotLost) {
  be(1, [](RanksByStore& ranks) { ranks.leave(3); });
  be(2, [](RanksByStore&) {});
  RanksByStore ranks(members(0));
  EXPECT_TRUE(ranks.has_ended(1));
  EXPECT_FALSE(ranks.has_ended(0));
  EXPECT_EQ(ranks.ended(3), std::vector<int>{2});
  EXPECT_EQ(ranks.ended_soon(4), (std::vector<int>{1, 2}));
  EXPECT_EQ(ranks.left_before(4), std::vector<int>{1});
  EXPECT_EQ(ranks.left_before(3), std::vector<int>());
  EXPECT_EQ(ranks.ended_as_known(), (std::vector<int>{1, 2}));
  EXPECT_EQ(ranks.has_left_after(1, 2), true);
  EXPECT_EQ(ranks.has_left_after(1, 4), false);
  EXPECT_EQ(ranks.has_left_after(2, 1), false);
}

/// The store may end with a rank. Those that came late are asked for once all have come.
TEST_F(RanksByStoreTest, WhoTheOthersAreIsKnownOnceAllHaveJoined) {
  RanksByStore ranks(members(0));
  ranks.know_all(/*have_all_joined=*/false);
  EXPECT_EQ(ranks.ended_as_known(), std::vector<int>());
  be(1, [](RanksByStore&) {});
  be(2, [](RanksByStore&) {});
  ranks.know_all(/*have_all_joined=*/true);
  EXPECT_EQ(ranks.ended_as_known(), (std::vector<int>{1, 2}));
}

/// Also those of other hosts, who can't look at its process.
TEST_F(RanksByStoreTest, ALossThatOneFindsIsThatOfAll) {
  LateByStore here(members(0), 0s);
  LateByStore elsewhere(members(2, "another"), 0s);
  be(1, [](RanksByStore&) {});
  EXPECT_NO_THROW(elsewhere.look(wait_of(1)));
  EXPECT_FALSE(elsewhere.agreed_loss(wait_of(1), /*looks=*/false).has_value());
  for (LateByStore* one : {&here, &elsewhere}) try {
      one->look(wait_of(1));
      ADD_FAILURE() << "rank 1 has ended";
    } catch (const PeerLost& error) {
      EXPECT_EQ(error.ranks(), std::vector<int>{1});
      EXPECT_TRUE(std::string(error.what()).starts_with("rank 1 (pid ")) << error.what();
    }
  EXPECT_TRUE(elsewhere.agreed_loss(wait_of(1), /*looks=*/false).has_value());
}

/// A connection ended, nobody knows whose: who finds that rank 1 has ended tells the others before it ends itself.
TEST_F(RanksByStoreTest, ALossThatOneLooksForIsThatOfAll) {
  LateByStore here(members(0), 0s);
  LateByStore elsewhere(members(2, "another"), 0s);
  be(1, [](RanksByStore&) {});
  EXPECT_FALSE(elsewhere.agreed_loss(wait_of(1), /*looks=*/true).has_value());
  const auto found = here.agreed_loss(wait_of(1), /*looks=*/true);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->ranks(), std::vector<int>{1});
  const auto told = elsewhere.agreed_loss(wait_of(1), /*looks=*/true);
  ASSERT_TRUE(told.has_value());
  EXPECT_STREQ(told->what(), found->what());
}

/// Who else is lost stays known when the rank that served the store is gone.
TEST_F(RanksByStoreTest, ALossIsFoundAlsoWithoutTheStore) {
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    close(go[1]);
    char end = 0;
    _exit(read(go[0], &end, 1) == 0 ? 0 : 1);
  }
  close(go[0]);
  auto server = std::make_unique<TcpStore>(TcpStoreOptions{.is_server = true});
  const EngineMembers members = {
      .name = "orphaned",
      .rank = 0,
      .size = 2,
      .store = std::make_shared<TcpStore>(TcpStoreOptions{.port = server->port()}),
      .host = "this",
      .processes = {describe_engine_process("this"),
                    fmt::format("this\n{}\n{}\npid {} on this", identity_of_process(pid), pid, pid)}};
  LateByStore late(members, 0s);
  server.reset();
  LateByStore::Wait wait = wait_of(2);
  EXPECT_LE(late.look(wait), 1s);  // It comes again.
  EXPECT_FALSE(late.agreed_loss(wait, /*looks=*/false).has_value());
  close(go[1]);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT), 0);
  const auto found = late.agreed_loss(wait, /*looks=*/true);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(std::string(found->what()), fmt::format("rank 1 (pid {} on this) has ended", pid));
  wait.have_all_come = true;  // It may have ended because it was through.
  EXPECT_NO_THROW(late.look(wait));
  EXPECT_FALSE(late.agreed_loss(wait, /*looks=*/true).has_value());
  wait.have_all_come = false;
  EXPECT_THROW(late.look(wait), PeerLost);
  ASSERT_EQ(waitpid(pid, nullptr, 0), pid);
}

/// What they waited for long ended well: nobody's time is over.
TEST_F(RanksByStoreTest, AWaitThatEndedWellIsNoTimeout) {
  LateByStore one(members(0), 0s);
  LateByStore other(members(1), 0s);
  LateByStore third(members(2), 0s);
  LateByStore::Wait wait = wait_of(1);
  wait.timeout = 1s;
  one.look(wait);
  one.end(1);
  std::atomic<bool> has_asked = false;
  std::thread later([&] {
    std::this_thread::sleep_for(500ms);
    if (!has_asked) one.agreed_timeout("said while it was waited for");
  });
  EXPECT_EQ(other.timeout_of_others(2), "");
  has_asked = true;
  later.join();
}

}  // namespace
}  // namespace retinue::test
