#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/shared_tensor.h"
#include "support/fork_shared.h"
#include "support/ranks.h"
#include "support/wait_until.h"
#include "torch/contribution.h"

namespace retinue {
namespace {

using test::contribution;
using test::run_ranks;

class ProcessGroups : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, ProcessGroups, testing::Values("shm", "gloo"));

TEST_P(ProcessGroups, BroadcastsAndGathers) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    for (int root = 0; root < 3; ++root) {
      at::Tensor tensor = contribution(members.rank, {2, 5}, at::kFloat);
      broadcast(tensor, group, {.src = root});
      EXPECT_TRUE(torch::equal(tensor, contribution(root, {2, 5}, at::kFloat)));
    }
    std::vector<at::Tensor> apart = {torch::zeros({4}), torch::zeros({4}), torch::zeros({4})};
    all_gather(apart, contribution(members.rank, {4}, at::kFloat), group);
    const at::Tensor whole = torch::zeros({3, 4});
    auto work = all_gather(whole.unbind(0), contribution(members.rank, {4}, at::kFloat), group, {.async_op = true});
    work->wait();
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_TRUE(torch::equal(apart[static_cast<std::size_t>(rank)], contribution(rank, {4}, at::kFloat)));
      EXPECT_TRUE(torch::equal(whole[rank], contribution(rank, {4}, at::kFloat)));
    }
    barrier(group);
  });
}

TEST_P(ProcessGroups, TensorsThatAreNotContiguousAreRight) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto filled = [&](int rank) { return contribution(rank, {6, 8}, at::kFloat); };
    const at::Tensor expected = filled(0) + filled(1);
    at::Tensor base = filled(members.rank);
    all_reduce(base.t(), group);
    EXPECT_TRUE(torch::equal(base, expected));
    at::Tensor sliced = filled(members.rank);
    all_reduce(sliced.slice(1, 0, 8, 2), group, {.async_op = true})->wait();
    EXPECT_TRUE(torch::equal(sliced.slice(1, 0, 8, 2), expected.slice(1, 0, 8, 2)));
    EXPECT_TRUE(torch::equal(sliced.slice(1, 1, 8, 2), filled(members.rank).slice(1, 1, 8, 2)));
    at::Tensor sent = filled(members.rank);
    broadcast(sent.t(), group, {.src = 1});
    EXPECT_TRUE(torch::equal(sent, filled(1)));
    const at::Tensor gathered = torch::zeros({8, 6, 2});
    all_gather({gathered.select(2, 0), gathered.select(2, 1)}, filled(members.rank).t(), group);
    EXPECT_TRUE(torch::equal(gathered.select(2, 0), filled(0).t()));
    EXPECT_TRUE(torch::equal(gathered.select(2, 1), filled(1).t()));
    EXPECT_THROW(all_reduce(torch::zeros({1}).expand({4}), group), UsageError);
    barrier(group);
  });
}

TEST_P(ProcessGroups, ServesCodeThatIsWrittenForC10d) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam(), .group_name = "trainers"});
    EXPECT_EQ(group->getGroupName(), "trainers");
    EXPECT_EQ(group->getSize(), 2);
    EXPECT_EQ(group->getDefaultBackend()->getBackendName(), GetParam());
    const at::Tensor expected = contribution(0, {9}, at::kFloat) + contribution(1, {9}, at::kFloat);
    for (const bool async_op : {false, true}) {
      std::vector<at::Tensor> tensors = {contribution(members.rank, {9}, at::kFloat)};
      c10d::AllreduceOptions options;
      options.asyncOp = async_op;
      auto work = group->allreduce(tensors, options);
      EXPECT_TRUE(work->wait());
      EXPECT_TRUE(torch::equal(tensors[0], expected));
      EXPECT_TRUE(torch::equal(work->getFuture()->value().toTensorVector().at(0), expected));
      EXPECT_TRUE(torch::equal(work->result().at(0), expected));
    }
    std::vector<at::Tensor> several = {contribution(members.rank, {9}, at::kFloat), torch::ones({2, 2})};
    group->allreduce_coalesced(several)->wait();
    EXPECT_TRUE(torch::equal(several[0], expected));
    EXPECT_TRUE(torch::equal(several[1], torch::full({2, 2}, 2.0f)));
    std::vector<at::Tensor> sent = {torch::full({3}, members.rank, torch::kLong)};
    c10d::BroadcastOptions from_1;
    from_1.rootRank = 1;
    group->broadcast(sent, from_1)->wait();
    EXPECT_TRUE(torch::equal(sent[0], torch::full({3}, 1, torch::kLong)));
    std::vector<std::vector<at::Tensor>> lists = {{torch::zeros({1}), torch::zeros({1})}};
    std::vector<at::Tensor> inputs = {torch::full({1}, members.rank + 5.0f)};
    group->allgather(lists, inputs)->wait();
    EXPECT_EQ(lists[0][0].item<float>(), 5.0f);
    EXPECT_EQ(lists[0][1].item<float>(), 6.0f);
    at::Tensor whole = torch::zeros({2});
    group->getDefaultBackend()->_allgather_base(whole, inputs[0])->wait();
    EXPECT_TRUE(torch::equal(whole, torch::tensor({5.0f, 6.0f})));
    group->setTimeout(std::chrono::minutes(2));
    group->barrier()->wait();
    EXPECT_EQ(group->getDefaultBackend()->getSequenceNumberForGroup(), 7u);
    EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::SUCCESS);
    EXPECT_THROW(group->send(several, 1 - members.rank, 0), UsageError);  // One tensor a message.
  });
}

TEST_P(ProcessGroups, AnAsynchronousCallDoesNotWaitForOtherRanks) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam(), .group_name = "data"});
    const ProcessGroup control = init_process_group(members, {.backend = GetParam(), .group_name = "control"});
    if (members.rank == 1) barrier(control);  // rank 0 comes here only if its calls returned
    at::Tensor sum = torch::full({1000}, members.rank + 1.0f);
    at::Tensor queued = torch::full({3}, members.rank + 1.0f);
    Work first = barrier(group, {.async_op = true});
    Work second = all_reduce(sum, group, {.async_op = true});
    std::promise<bool> called;
    if (members.rank == 0) {
      EXPECT_FALSE(first->isCompleted());
      EXPECT_FALSE(second->isCompleted());
      EXPECT_THROW(second->wait(std::chrono::milliseconds(5)), TimeoutError);  // And the operation goes on.
      second->getFuture()->addCallback(
          [&called](c10::ivalue::Future& future) { called.set_value(!future.hasError()); });
      barrier(control);
    }
    all_reduce(queued, group);  // keeps its place behind the two
    EXPECT_TRUE(first->isCompleted());
    EXPECT_TRUE(second->wait());
    EXPECT_TRUE(first->isSuccess());
    EXPECT_TRUE(torch::equal(sum, torch::full({1000}, 3.0f)));
    EXPECT_TRUE(torch::equal(queued, torch::full({3}, 3.0f)));
    second->getFuture()->wait();
    if (members.rank == 1) called.set_value(true);
    EXPECT_TRUE(called.get_future().get());
  });
}

TEST_P(ProcessGroups, ManyAsynchronousCallsKeepTheirOrder) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    std::vector<at::Tensor> tensors;
    std::vector<Work> works;
    for (int i = 0; i < 300; ++i) {
      tensors.push_back(torch::full({1 + i * 7}, static_cast<float>(i * (members.rank + 1))));
      works.push_back(all_reduce(tensors.back(), group, {.async_op = i % 5 != 0}));
      if (i % 40 == members.rank) torch::ones({100000}).sum();
    }
    for (const Work& work : works)
      if (work) work->wait();
    for (int i = 0; i < 300; ++i)
      EXPECT_TRUE(torch::equal(tensors[static_cast<std::size_t>(i)], torch::full({1 + i * 7}, i * 3.0f)));
  });
}

TEST_P(ProcessGroups, AGroupMayGoWhileAnOperationIsOnItsWay) {
  run_ranks(2, [](const JobGroup& members) {
    ProcessGroup group = init_process_group(members, {.backend = GetParam(), .group_name = "data"});
    const ProcessGroup control = init_process_group(members, {.backend = GetParam(), .group_name = "control"});
    if (members.rank == 1) {
      barrier(control);
      at::Tensor sum = torch::ones({4});
      all_reduce(sum, group);
      EXPECT_TRUE(torch::equal(sum, torch::full({4}, 2.0f)));
      return;
    }
    at::Tensor sum = torch::ones({4});
    Work on_its_way = all_reduce(sum, group, {.async_op = true});
    Work behind = barrier(group, {.async_op = true});
    group.reset();
    EXPECT_THROW(behind->wait(), Closed);
    barrier(control);
    EXPECT_TRUE(on_its_way->wait());
    EXPECT_TRUE(torch::equal(sum, torch::full({4}, 2.0f)));
  });
}

TEST_P(ProcessGroups, TheDeathOfARankEndsEveryWait) {
  run_ranks(2,
            [](const JobGroup& members) {
              const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
              if (members.rank == 1) raise(SIGKILL);
              Work work = barrier(group, {.async_op = true});
              try {
                work->wait();
                ADD_FAILURE() << "the wait ended well";
              } catch (const PeerLost& lost) {
                EXPECT_EQ(lost.ranks(), std::vector<int>{1});
                EXPECT_NE(std::string(lost.what()).find("process_group_test.cpp"), std::string::npos) << lost.what();
              }
              work->getFuture()->wait();
              EXPECT_TRUE(work->getFuture()->hasError());
              EXPECT_FALSE(work->isSuccess());
              EXPECT_THROW(all_reduce(torch::ones({2}), group), PeerLost);
              EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::REMOTE_ERROR);
            },
            {.killed = {1}});
}

TEST_P(ProcessGroups, DifferentCallsAreNoticed) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const at::Tensor tensor = torch::ones({members.rank == 0 ? 100 : 200});
    EXPECT_THROW(all_reduce(tensor, group), CollectiveMismatch);
    EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::COMM_ERROR);
  });
}

TEST_P(ProcessGroups, ALateRankIsATimeout) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup control = init_process_group(members, {.backend = GetParam(), .group_name = "control"});
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    group->setTimeout(std::chrono::milliseconds(50));
    if (members.rank == 0) {
      EXPECT_THROW(barrier(group), TimeoutError);
      EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::TIMEOUT);
    }
    barrier(control);
  });
}

TEST(ShmProcessGroup, RefusesWhatItCannotDoRight) {
  const ProcessGroup alone = init_process_group();
  const at::Tensor good = torch::ones({2});
  EXPECT_THROW(all_reduce(at::Tensor(), alone), UsageError);
  EXPECT_THROW(all_reduce(good, ProcessGroup()), UsageError);
  EXPECT_THROW(broadcast(good.to_sparse(), alone), UsageError);
  EXPECT_THROW(all_reduce(good, alone, {.op = c10d::ReduceOp::BOR}), UsageError);
  EXPECT_THROW(broadcast(good, alone, {.src = 1}), UsageError);
  EXPECT_THROW(all_gather({torch::ones({3})}, good, alone), UsageError);
  EXPECT_THROW(all_gather({torch::ones({2}, torch::kDouble)}, good, alone), UsageError);
  EXPECT_THROW(all_gather({}, good, alone), UsageError);
  try {
    all_reduce(torch::ones({2}, torch::kMeta), alone);
    ADD_FAILURE() << "a tensor without memory was reduced";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("meta"), std::string::npos) << error.what();
  }
  try {
    all_reduce(torch::ones({2}).to(at::kFloat8_e4m3fn), alone);
    ADD_FAILURE() << "an 8-bit float was reduced";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("Float8_e4m3fn"), std::string::npos) << error.what();
  }
  EXPECT_THROW(init_process_group({.backend = "mpi"}), UsageError);
  EXPECT_THROW(init_process_group({.init_method = "tcp://localhost:29500"}), UsageError);
}

TEST(ShmProcessGroup, AProcessThatNobodyStartedIsAWorldOfOne) {
  const ProcessGroup alone = init_process_group();
  EXPECT_EQ(alone->getSize(), 1);
  at::Tensor tensor = torch::tensor({1.0f, 2.0f});
  all_reduce(tensor, alone, {.op = c10d::ReduceOp::AVG});
  all_reduce(tensor, alone, {.async_op = true})->wait();
  broadcast(tensor, alone);
  at::Tensor copy = torch::zeros({2});
  all_gather({copy}, tensor, alone);
  EXPECT_TRUE(torch::equal(copy, torch::tensor({1.0f, 2.0f})));
  EXPECT_TRUE(barrier(alone, {.async_op = true})->wait());
}

TEST(ShmProcessGroup, RefusesTheWorldOfAnotherLauncher) {
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_THROW(init_process_group(), UsageError);
  setenv("WORLD_SIZE", "many", 1);
  EXPECT_THROW(init_process_group(), UsageError);
  setenv("WORLD_SIZE", "1", 1);
  EXPECT_EQ(init_process_group()->getSize(), 1);
  unsetenv("WORLD_SIZE");
}

TEST(ProcessGroup, SaysWhereItIsMadeWhileOthersDoNotCome) {
  const test::ForkShared<std::atomic<bool>> done;
  run_ranks(2, [&](const JobGroup& members) {
    if (members.rank == 1) {
      EXPECT_TRUE(test::wait_until([&] { return done->load(); }));
      return;
    }
    try {
      init_process_group(members, {.timeout = std::chrono::milliseconds(20)});
      ADD_FAILURE() << "a group of one of two";
    } catch (const TimeoutError& error) {
      EXPECT_NE(std::string(error.what()).find("rank 0 waits in the opening of the group at "), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("process_group_test.cpp:"), std::string::npos) << error.what();
    }
    *done = true;
  });
}

}  // namespace
}  // namespace retinue
