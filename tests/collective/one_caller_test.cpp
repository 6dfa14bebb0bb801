// A communicator in which two threads are at the same time.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "os/process/process_look.h"
#include "retinue/collective/communicator.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "support/wait_until.h"

namespace retinue::test {
namespace {

const CallSite kFirst{"first.cpp", 1};
const CallSite kSecond{"second.cpp", 2};

/// Something that waits until rank 1 comes, and then ends well.
struct WaitingCall {
  std::string text;
  std::function<void(Communicator&)> first;   ///< On rank 0.
  std::function<void(Communicator&)> answer;  ///< On rank 1.
};

std::vector<WaitingCall> waiting_calls() {
  static int value = 0;
  const auto data = [] { return std::span(&value, 1); };
  const auto barrier = [](Communicator& c) { c.barrier(); };
  return {{"barrier at first.cpp:1", [](Communicator& c) { c.barrier(kFirst); }, barrier},
          {"monitored_barrier at first.cpp:1", [](Communicator& c) { c.monitored_barrier({}, kFirst); },
           [](Communicator& c) { c.monitored_barrier(); }},
          {"recv at first.cpp:1", [=](Communicator& c) { c.recv(data(), 1, 0, kFirst); },
           [=](Communicator& c) { c.send(data(), 0); }},
          {"Request::wait for the operation started at first.cpp:1",
           [](Communicator& c) { c.start(CollectiveCall::barrier(), kFirst).wait(); }, barrier},
          {"Request::wait_any for the operation started at first.cpp:1",
           [](Communicator& c) {
             const Request request = c.start(CollectiveCall::barrier(), kFirst);
             Request::wait_any({&request, 1});
           },
           barrier}};
}

/// Calls of a second thread, none of which waits for anybody where it is alone.
struct SecondCall {
  std::string text;
  std::function<void(Communicator&)> call;
};

std::vector<SecondCall> second_calls() {
  static int value = 0;
  const auto data = [] { return std::span(&value, 1); };
  return {{"all_reduce at second.cpp:2", [=](Communicator& c) { c.all_reduce(data(), ReduceOp::kSum, kSecond); }},
          {"barrier at second.cpp:2", [](Communicator& c) { (void)c.start(CollectiveCall::barrier(), kSecond); }},
          {"broadcast in broadcast_object at second.cpp:2",
           [=](Communicator& c) { c.broadcast(data(), 0, kSecond.inside(OuterCall::kBroadcastObject)); }},
          {"monitored_barrier at second.cpp:2", [](Communicator& c) { c.monitored_barrier({}, kSecond); }},
          {"send at second.cpp:2", [=](Communicator& c) { c.send(data(), 1, 7, kSecond); }},
          {"isend at second.cpp:2", [=](Communicator& c) { (void)c.isend(data(), 1, 7, kSecond); }},
          {"irecv at second.cpp:2", [=](Communicator& c) { (void)c.irecv(data(), 1, 7, kSecond); }},
          {"sendrecv at second.cpp:2",
           [=](Communicator& c) {
             int other = 0;
             c.sendrecv(data(), 1, std::span(&other, 1), 1, 7, kSecond);
           }},
          {"batch_isend_irecv at second.cpp:2", [](Communicator& c) { (void)c.batch_isend_irecv({}, kSecond); }}};
}

/// A thread that has come to where it sleeps, which in these calls is where they wait for others.
class ThreadThatSleeps {
 public:
  explicit ThreadThatSleeps(const std::function<void()>& call)
      : thread_([this, call] {
          tid_ = gettid();
          call();
        }) {
    EXPECT_TRUE(wait_until([this] { return tid_ != 0 && state_of_thread(getpid(), tid_) == 'S'; }));
  }
  ~ThreadThatSleeps() { thread_.join(); }
  ThreadThatSleeps(const ThreadThatSleeps&) = delete;
  ThreadThatSleeps& operator=(const ThreadThatSleeps&) = delete;

 private:
  std::atomic<pid_t> tid_ = 0;
  std::thread thread_;
};

/// The first thread's call is one that can't end before rank 1 comes, which it does after all refusals.
TEST(OneCaller, RefusesTheSecondThreadAndLetsTheFirstGoOn) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group, {.waiting = Waiting::kPolite});
    Communicator gate(group);
    for (const WaitingCall& waiting : waiting_calls()) {
      if (group.rank == 1) {
        gate.barrier();
        waiting.answer(communicator);
        continue;
      }
      const Request begun = communicator.irecv(std::span<int>(), 1, 99);
      const ThreadThatSleeps first([&] { waiting.first(communicator); });
      for (const SecondCall& second : second_calls()) {
        const std::string refusal = usage_error_of([&] { second.call(communicator); });
        EXPECT_EQ(
            refusal,
            "group \"test group\": two threads of this rank use one communicator at the same time, one in " +
                waiting.text + ", this one in " + second.text +
                ". Give each thread its own communicator, with retinue::split or new_group. Threads that take turns "
                "with one must do so in the same order on all ranks, which a mutex does not ensure");
      }
      EXPECT_TRUE(
          says(usage_error_of([&] { begun.wait(); }), "this one in Request::wait for the operation started at "));
      EXPECT_TRUE(
          says(usage_error_of([&] { (void)begun.done(); }), "this one in Request::done of the operation started at "));
      gate.barrier();
    }
    communicator.barrier();  // Nothing of what was refused was begun, and nothing is broken.
  });
}

TEST(OneCaller, MayBeAnotherThreadFromCallToCall) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int sum = 1;
    std::thread([&] { communicator.all_reduce(std::span(&sum, 1)); }).join();
    communicator.all_reduce(std::span(&sum, 1));
    EXPECT_EQ(sum, 4);
    const Request begun = communicator.start(CollectiveCall::all_reduce(&sum, 1, Dtype::kInt32, ReduceOp::kSum));
    std::thread([&] { begun.wait(); }).join();
    EXPECT_EQ(sum, 8);
  });
}

TEST(OneCaller, MayMakeCallsInItsCallbacks) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int sum = 1;
    const Request begun = communicator.start(CollectiveCall::barrier());
    begun.then([&] { communicator.all_reduce(std::span(&sum, 1)); });
    begun.wait();
    EXPECT_EQ(sum, 2);
    std::thread([&] { communicator.barrier(); }).join();  // That call didn't leave the communicator taken.
  });
}

TEST(OneCaller, IsFreeAgainAfterAnError) {
  run_ranks(2, [](const JobGroup& group) {
    Communicator communicator(group);
    int value = 0;
    EXPECT_THROW(communicator.broadcast(std::span(&value, 1), 5), UsageError);
    std::thread([&] { communicator.barrier(); }).join();
  });
}

}  // namespace
}  // namespace retinue::test
