// Late ranks of groups that share no memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collective/thread_engine.h"
#include "retinue/base/error.h"
#include "retinue/store/hash_store.h"
#include "support/captured_stderr.h"
#include "support/says.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

using namespace std::chrono_literals;

std::string late_text_of(Communicator& group) {
  try {
    group.barrier();
  } catch (const TimeoutError& error) {
    return error.what();
  }
  return "no TimeoutError";
}

const std::string kOwnPid = "(pid " + std::to_string(getpid()) + " on ";

TEST(LateByStore, NamesWhoIsLateAndWhatItDoes) {
  const CapturedStderr captured;
  captured.begin();
  const auto store = std::make_shared<HashStore>();
  const std::int64_t keys_before = store->num_keys();
  run_engine_ranks(
      3,
      [&](Communicator& group) {
        int number = 1;
        for (int turn = 0; turn < 2; ++turn) {
          group.barrier();
          if (group.rank() == 1) {
            EXPECT_TRUE(wait_until([&] { return says(captured.text(), "This report repeats in "); }))
                << captured.text();
          }
          group.all_reduce(&number, 1, Dtype::kInt32, ReduceOp::kSum);
          const std::string text = captured.text();
          EXPECT_TRUE(says(text, "retinue: group \"of threads\": rank 1 is late\n")) << text;
          EXPECT_TRUE(says(text, "waits in its " + std::string(turn == 0 ? "2nd" : "6th") + " call, all_reduce("))
              << text;
          EXPECT_TRUE(says(text, "late_by_store_test.cpp")) << text;
          EXPECT_TRUE(says(text, "rank 1 " + kOwnPid)) << text;
          EXPECT_TRUE(says(
              text, ") is missing, seen after " + std::string(turn == 0 ? "1 call" : "5 calls") + ", the last barrier"))
              << text;
          EXPECT_TRUE(says(text, "\n    it ")) << text;
          group.barrier();
          if (group.rank() == 0) captured.clear();
          group.barrier();
        }
      },
      {.store = store, .host = "this"}, {.late_after = 1200ms});
  // What was left there goes with the wait, but for what each says of itself.
  EXPECT_EQ(store->num_keys(), keys_before + 3);
}

TEST(LateByStore, SaysAtTheTimeoutWhoIsMissing) {
  run_engine_ranks(3,
                   [](Communicator& group) {
                     group.barrier();
                     if (group.rank() == 1) return;
                     const std::string text = late_text_of(group);
                     EXPECT_TRUE(says(text, "its timeout passed; missing: rank 1 " + kOwnPid)) << text;
                     EXPECT_TRUE(says(text, ", seen after 1 call, the last barrier at ")) << text;
                     EXPECT_TRUE(says(text, ", which ")) << text;
                     EXPECT_FALSE(says(text, "; rank")) << text;
                   },
                   {.store = std::make_shared<HashStore>(), .host = "this"}, {.timeout = 300ms, .late_after = 0s});
}

/// Takes what ranks say of themselves, and then is gone.
class GoneStore final : public Store {
 public:
  GoneStore() : Store(1s) {}
  std::string name() const override { return "a store that is gone"; }
  bool was_asked() const { return was_asked_; }

 private:
  [[noreturn]] void fail() {
    was_asked_ = true;
    throw Closed("it is gone");
  }
  void do_set(std::string_view key, std::string_view /*value*/, Deadline /*deadline*/) override {
    if (!key.starts_with("process")) fail();
  }
  std::vector<std::string> do_multi_get(const std::vector<std::string>& /*keys*/, Deadline /*deadline*/) override {
    fail();
  }
  std::int64_t do_add(std::string_view /*key*/, std::int64_t /*delta*/, Deadline /*deadline*/) override { fail(); }
  std::string do_compare_set(std::string_view /*key*/, std::string_view /*expected*/, std::string_view /*desired*/,
                             Deadline /*deadline*/) override {
    fail();
  }
  void do_wait(const std::vector<std::string>& /*keys*/, Deadline /*deadline*/) override { fail(); }
  bool do_check(const std::vector<std::string>& /*keys*/, Deadline /*deadline*/) override { fail(); }
  bool do_delete_key(std::string_view /*key*/, Deadline /*deadline*/) override { fail(); }
  std::int64_t do_num_keys(Deadline /*deadline*/) override { fail(); }

  std::atomic<bool> was_asked_{false};
};

TEST(LateByStore, GoesOnWithoutAStoreThatIsGone) {
  const auto store = std::make_shared<GoneStore>();
  run_engine_ranks(2,
                   [&](Communicator& group) {
                     if (group.rank() == 1) {
                       EXPECT_TRUE(wait_until([&] { return store->was_asked(); }));
                     }
                     group.barrier();
                   },
                   {.store = store}, {.late_after = 1ms});
  run_engine_ranks(2,
                   [](Communicator& group) {
                     if (group.rank() == 0) {
                       EXPECT_TRUE(says(late_text_of(group), "its timeout passed"));
                     }
                   },
                   {.store = std::make_shared<GoneStore>()}, {.timeout = 50ms});
}

}  // namespace
}  // namespace retinue::test
