// What all stores have in common, over all stores: in one thread, between threads, and between forked processes.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "store/places.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

std::string timeout_text(const std::function<void()>& call) {
  try {
    call();
  } catch (const TimeoutError& error) {
    return error.what();
  }
  return "no TimeoutError";
}

class Conformance : public testing::TestWithParam<test::Kind> {
 protected:
  std::shared_ptr<Store> join() { return place_->join(); }

  /// `body` in `count` threads, or processes, each with a store of its own.
  void in_threads(int count, const std::function<void(Store&, int)>& body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        const std::shared_ptr<Store> store = join();
        body(*store, i);
      });
    for (std::thread& thread : threads) thread.join();
  }
  void in_processes(int count, const std::function<void(Store&, int)>& body) {
    std::vector<pid_t> pids;
    // They begin together: a fork beside a server that serves another may find the sanitizer's heap locked for ever.
    const test::ForkShared<std::atomic<bool>> begin;
    const auto has_begun = [&] { return begin->load(); };
    for (int i = 0; i < count; ++i)
      pids.push_back(start_process([&, i](Store& store) { body(store, i); }, [&] { test::wait_until(has_begun); }));
    begin->store(true);
    for (const pid_t pid : pids) {
      int status = 0;
      ASSERT_EQ(waitpid(pid, &status, 0), pid);
      EXPECT_EQ(status, 0);
    }
  }
  pid_t start_process(
      const std::function<void(Store&)>& body, const std::function<void()>& await = [] {}) {
    const pid_t pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      await();
      const std::shared_ptr<Store> store = join();
      body(*store);
    } catch (const std::exception& error) {
      fprintf(stderr, "%s\n", error.what());
      _exit(1);
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }

  std::unique_ptr<test::StorePlace> place_ = GetParam().make();
};

class BetweenProcesses : public Conformance {};

TEST_P(Conformance, KeepsWhatIsSet) {
  const auto store = join();
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
  store->set("key", "another");
  EXPECT_EQ(join()->get("key"), "another");
  store->set("", "an empty key");
  EXPECT_EQ(store->get(""), "an empty key");
  store->set("empty", "");
  EXPECT_EQ(store->get("empty"), "");
  EXPECT_TRUE(store->check({"empty", "key", ""}));
  EXPECT_FALSE(store->check({"empty", "nothing"}));
  EXPECT_TRUE(store->check({}));
  EXPECT_EQ(store->num_keys(), 3);
}

TEST_P(Conformance, KeepsAnyBytes) {
  const auto store = join();
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  store->set(bytes, bytes + bytes);
  EXPECT_EQ(join()->get(bytes), bytes + bytes);
  const std::string large(3'000'000, 'x');
  store->set("large", large + "end");
  EXPECT_EQ(join()->get("large"), large + "end");
}

TEST_P(Conformance, Adds) {
  const auto store = join();
  EXPECT_EQ(store->add("count", 5), 5);
  EXPECT_EQ(store->add("count", -7), -2);
  EXPECT_EQ(store->get("count"), "-2");
  store->set("count", "40");
  EXPECT_EQ(join()->add("count", 2), 42);
  EXPECT_EQ(store->add("most", kMost), kMost);
}

TEST_P(Conformance, RefusesSumsThatAreNone) {
  const auto store = join();
  store->add("most", kMost);
  EXPECT_THROW(store->add("most", 1), UsageError);
  EXPECT_EQ(store->get("most"), std::to_string(kMost));
  store->set("word", "12 apples");
  EXPECT_THROW(store->add("word", 1), UsageError);
  EXPECT_EQ(store->get("word"), "12 apples");
  store->set("nothing", "");
  EXPECT_THROW(store->add("nothing", 1), UsageError);
}

TEST_P(Conformance, ComparesAndSets) {
  const auto store = join();
  EXPECT_EQ(store->compare_set("key", "expected", "desired"), "expected");
  EXPECT_FALSE(store->check({"key"}));
  EXPECT_EQ(store->compare_set("key", "", "first"), "first");
  EXPECT_EQ(store->compare_set("key", "", "second"), "first");
  EXPECT_EQ(store->compare_set("key", "other", "second"), "first");
  EXPECT_EQ(join()->compare_set("key", "first", "second"), "second");
  EXPECT_EQ(store->get("key"), "second");
}

TEST_P(Conformance, DeletesKeys) {
  const auto store = join();
  EXPECT_FALSE(store->delete_key("key"));
  store->set("key", "value");
  EXPECT_TRUE(join()->delete_key("key"));
  EXPECT_FALSE(store->check({"key"}));
  EXPECT_FALSE(store->delete_key("key"));
  EXPECT_EQ(store->num_keys(), 0);
  EXPECT_EQ(store->compare_set("key", "", "again"), "again");
}

TEST_P(Conformance, GetsManyAtOnce) {
  const auto store = join();
  std::vector<std::string> keys;
  for (int i = 0; i < 300; ++i) {
    keys.push_back("key " + std::to_string(i));
    store->set(keys.back(), std::to_string(i * i));
  }
  keys.push_back(keys.front());
  const std::vector<std::string> values = join()->multi_get(keys);
  ASSERT_EQ(values.size(), keys.size());
  for (int i = 0; i < 300; ++i) EXPECT_EQ(values[i], std::to_string(i * i));
  EXPECT_EQ(values.back(), "0");
  EXPECT_TRUE(store->multi_get({}).empty());
}

TEST_P(Conformance, NamesTheKeysThatNobodySet) {
  const auto store = join();
  store->set("here", "1");
  const std::string text = timeout_text([&] { store->wait({"here", "absent", "lost"}, 20ms); });
  EXPECT_NE(text.find("absent'"), std::string::npos) << text;
  EXPECT_NE(text.find("lost'"), std::string::npos) << text;
  EXPECT_EQ(text.find("here'"), std::string::npos) << text;
  EXPECT_NE(timeout_text([&] { store->get("absent", Deadline::after(20ms)); }).find("absent'"), std::string::npos);
  EXPECT_NE(timeout_text([&] { store->wait({"absent"}, 0ns); }).find("absent'"), std::string::npos);
  store->wait({"here"}, 0ns);
  store->wait({}, 0ns);
  store->set_timeout(20ms);
  EXPECT_EQ(store->timeout(), 20ms);
  EXPECT_NE(timeout_text([&] { store->multi_get({"absent"}); }).find("absent'"), std::string::npos);
  store->set("absent", "2");
  EXPECT_EQ(store->get("absent"), "2");
}

TEST_P(Conformance, RefusesTimeoutsThatAreNone) {
  const auto store = join();
  EXPECT_THROW(store->set_timeout(0ns), UsageError);
  EXPECT_THROW(store->set_timeout(-1ns), UsageError);
  store->set_timeout(Store::Time::max());
  store->set("key", "value");
  EXPECT_EQ(store->get("key"), "value");
  EXPECT_FALSE(store->name().empty());
}

TEST_P(Conformance, WaitsForOthers) {
  in_threads(6, [](Store& store, int i) {
    store.set("from " + std::to_string(i), std::to_string(i));
    for (int other = 0; other < 6; ++other)
      EXPECT_EQ(store.get("from " + std::to_string(other)), std::to_string(other));
  });
}

TEST_P(Conformance, AWaitHoldsUpNoOtherCallOfTheSameStore) {
  const auto store = join();
  std::thread waiting([&] { EXPECT_EQ(store->get("answer"), "42"); });
  for (int i = 0; i < 10; ++i) store->add("question", 1);
  EXPECT_EQ(store->get("question"), "10");
  store->set("answer", "42");
  waiting.join();
}

TEST_P(Conformance, AWaitEndsWhenAllKeysAreThereAtOnce) {
  const auto store = join();
  store->set("a", "1");
  std::atomic<bool> is_over = false;
  std::thread waiting([&] {
    join()->wait({"a", "b"});
    is_over = true;
  });
  store->delete_key("a");
  store->set("b", "2");
  store->delete_key("b");
  store->set("a", "3");
  // The wait may have begun before all this or after it: in no moment were both there.
  EXPECT_FALSE(is_over);
  store->set("b", "4");
  waiting.join();
}

TEST_P(Conformance, AddsWithoutLossBetweenThreads) {
  const int turns = test::is_sanitized() ? 50 : 200;
  in_threads(8, [&](Store& store, int) {
    for (int turn = 0; turn < turns; ++turn) store.add("sum", 1);
  });
  EXPECT_EQ(join()->add("sum", 0), 8 * turns);
}

TEST_P(Conformance, OneOfManyComparesAndSets) {
  std::atomic<int> winners = 0;
  in_threads(8, [&](Store& store, int i) {
    if (store.compare_set("chief", "", std::to_string(i)) == std::to_string(i)) ++winners;
  });
  EXPECT_EQ(winners, 1);
}

TEST_P(BetweenProcesses, IsOneTable) {
  const int turns = test::is_sanitized() ? 20 : 100;
  in_processes(6, [&](Store& store, int i) {
    for (int turn = 0; turn < turns; ++turn) store.add("sum", 1);
    store.set("done " + std::to_string(i), "yes");
    for (int other = 0; other < 6; ++other) store.wait({"done " + std::to_string(other)});
    EXPECT_EQ(store.get("sum"), std::to_string(6 * turns));
  });
}

TEST_P(BetweenProcesses, AKilledMemberStopsNobody) {
  const auto store = join();
  for (int round = 0; round < 5; ++round) {
    const std::string started = "started " + std::to_string(round);
    const pid_t busy = start_process([&](Store& mine) {
      mine.set(started, "yes");
      for (;;) mine.add("work", 1);
    });
    const pid_t idle = start_process([](Store& mine) { mine.wait({"never"}); });
    store->wait({started});
    for (int i = 0; i < 20; ++i) store->add("work", 1);
    kill(busy, SIGKILL);
    kill(idle, SIGKILL);
    ASSERT_EQ(waitpid(busy, nullptr, 0), busy);
    ASSERT_EQ(waitpid(idle, nullptr, 0), idle);
    // What the killed one had asked for a server may do a little later, once.
    const std::int64_t work = store->add("work", 0);
    const std::int64_t more = store->add("work", 1) - work;
    EXPECT_TRUE(more == 1 || more == 2) << more;
  }
}

std::string kind_name(const testing::TestParamInfo<test::Kind>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Stores, Conformance, testing::ValuesIn(test::all_kinds()), kind_name);
INSTANTIATE_TEST_SUITE_P(Stores, BetweenProcesses, testing::ValuesIn(test::kinds_between_processes()), kind_name);

TEST(PrefixStore, KeepsKeysApart) {
  const auto store = std::make_shared<HashStore>(7s);
  PrefixStore left("left", store);
  PrefixStore inner("inner", std::make_shared<PrefixStore>("left", store));
  left.set("key", "1");
  inner.set("key", "2");
  EXPECT_EQ(store->get("left/key"), "1");
  EXPECT_EQ(store->get("left/inner/key"), "2");
  EXPECT_EQ(left.get("inner/key"), "2");
  EXPECT_EQ(left.timeout(), 7s);
  left.set_timeout(3s);
  EXPECT_EQ(store->timeout(), 7s);
  EXPECT_EQ(left.num_keys(), 2);
  EXPECT_EQ(left.underlying_store(), store);
  EXPECT_EQ(left.prefix(), "left");
  EXPECT_EQ(left.name(), "PrefixStore 'left' of HashStore");
  EXPECT_THROW(PrefixStore("none", nullptr), UsageError);
  EXPECT_THROW(HashStore(0s), UsageError);
}

}  // namespace
}  // namespace retinue
