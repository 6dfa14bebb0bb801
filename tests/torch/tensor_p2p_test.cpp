// Messages between two ranks, with tensors.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/messages.h"
#include "retinue/torch/shared_tensor.h"
#include "support/ranks.h"
#include "torch/contribution.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::contribution;
using test::is_sanitized;
using test::run_ranks;

TEST(TensorP2P, BringsTensorsOfAllKinds) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const int peer = 1 - members.rank;
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte, at::kBool})
      for (const std::int64_t side : {0, 1, 5, 300}) {
        const at::Tensor mine = contribution(members.rank, {side, side}, type);
        const at::Tensor wanted = contribution(peer, {side, side}, type);
        const at::Tensor shared = shared_empty({side, side}, members.memory, type);
        shared.copy_(mine);
        const at::Tensor spread = torch::empty({side, 2 * side}, type).slice(1, 0, 2 * side, 2);
        spread.copy_(mine);
        for (const at::Tensor& sent : {mine, shared, spread, mine.t().contiguous().t()})
          for (const at::Tensor& got :
               {torch::empty({side, side}, type), shared_empty({side, side}, members.memory, type),
                torch::empty({side, 2 * side}, type).slice(1, 0, 2 * side, 2)}) {
            const Work work = isend(sent, group, peer, 3);
            EXPECT_EQ(recv(got, group, peer, 3), peer);
            work->wait();
            ASSERT_TRUE(torch::equal(got, wanted)) << type << " " << side;
          }
      }
  });
}

TEST(TensorP2P, MatchesBySourceAndTag) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    if (members.rank != 0) {
      send(torch::full({2}, 1.f * members.rank), group, 0, 7);
      send(torch::full({2}, 10.f * members.rank), group, 0, 8);
      return;
    }
    at::Tensor first = torch::zeros({2});
    at::Tensor second = torch::zeros({2});
    const int one = recv(first, group, kAnySource, 7);
    const Work work = irecv(second, group, kAnySource, 7);
    work->wait();
    EXPECT_EQ(one + work->sourceRank(), 3);
    EXPECT_EQ(first[0].item<float>(), one);
    EXPECT_EQ(second[1].item<float>(), work->sourceRank());
    recv(first, group, 2, 8);
    recv(second, group, 1, kAnyTag);
    EXPECT_EQ(first[0].item<float>(), 20);
    EXPECT_EQ(second[0].item<float>(), 10);
  });
}

TEST(TensorP2P, ServesCodeThatIsWrittenForC10d) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const int peer = 1 - members.rank;
    std::vector<at::Tensor> out = {torch::full({3}, members.rank)};
    std::vector<at::Tensor> in = {torch::full({3}, -1)};
    const Work sent = group->send(out, peer, 4);
    const Work got = group->recv(in, peer, 4);
    EXPECT_TRUE(got->wait());
    EXPECT_TRUE(sent->wait());
    EXPECT_TRUE(torch::equal(in[0], torch::full({3}, peer)));
    EXPECT_TRUE(torch::equal(got->getFuture()->value().toTensorVector().at(0), in[0]));
    const Work again = group->send(out, peer, 0);
    const Work any = group->recvAnysource(in, 0);
    any->wait();
    EXPECT_EQ(any->sourceRank(), peer);
    again->wait();
    std::vector<at::Tensor> two = {out[0], in[0]};
    EXPECT_THROW(group->send(two, peer, 0), UsageError);
    EXPECT_EQ(group->getDefaultBackend()->getSequenceNumberForGroup(), 0u);  // Of collectives.
  });
}

TEST(TensorP2P, BeginsABatch) {
  run_ranks(4, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    std::vector<TensorP2POp> messages;
    std::vector<at::Tensor> got;
    for (int peer = 0; peer < 4; ++peer) {
      got.push_back(torch::zeros({1000 * (peer + 1)}));
      messages.push_back(TensorP2POp::isend(torch::full({1000 * (members.rank + 1)}, members.rank + 0.5f), peer));
      messages.push_back(TensorP2POp::irecv(got.back(), peer));
    }
    for (const Work& work : batch_isend_irecv(messages, group)) work->wait();
    for (int peer = 0; peer < 4; ++peer)
      EXPECT_TRUE(torch::equal(got[static_cast<std::size_t>(peer)], torch::full({1000 * (peer + 1)}, peer + 0.5f)));
    messages.push_back(TensorP2POp::isend(torch::zeros({1}), 9));
    EXPECT_THROW(batch_isend_irecv(messages, group), UsageError);
    barrier(group);
    EXPECT_TRUE(batch_isend_irecv({}, group).empty());
  });
}

/// No message waits until a collective is done, nor a collective for a message; nobody need wait for either.
TEST(TensorP2P, GoesOnBesideCollectives) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const int peer = 1 - members.rank;
    const std::int64_t many = 1 << 20;
    at::Tensor in = torch::zeros({many});
    if (members.rank == 0) {
      const Work work = isend(torch::full({many}, 2.f), group, peer);  // In pieces, which rank 1 asks for below.
      at::Tensor sum = torch::ones({1});
      all_reduce(sum, group);
      work->wait();
      const Work late = irecv(in, group, peer);
      barrier(group);
      late->wait();
      EXPECT_EQ(in.sum().item<float>(), 3.f * static_cast<float>(many));
    } else {
      recv(in, group, peer);  // Rank 0 is in its all_reduce.
      EXPECT_EQ(in.sum().item<float>(), 2.f * static_cast<float>(many));
      at::Tensor sum = torch::ones({1});
      const Work reduced = all_reduce(sum, group, {.async_op = true});
      reduced->wait();
      std::promise<void> arrived;
      const Work work = isend(torch::full({many}, 3.f), group, peer);
      work->getFuture()->addCallback([&](c10::ivalue::Future&) { arrived.set_value(); });
      arrived.get_future().wait();  // By nothing but the helper, while rank 0 is in its barrier.
      barrier(group);
    }
  });
}

TEST(TensorP2P, SendsAndReceivesFromSeveralThreads) {
  constexpr int kThreads = 4;
  constexpr int kMessages = is_sanitized() ? 50 : 400;
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const int peer = 1 - members.rank;
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kMessages; ++i) {
          const std::int64_t count = i % 7 == 0 ? 50'000 : i % 50 + 1;
          at::Tensor in = torch::zeros({count}, torch::kInt);
          const at::Tensor out = torch::full({count}, 1000 * t + i, torch::kInt);
          if (t % 2 == 0) {
            const Work work = i % 3 == 0 ? irecv(in, group, peer, t) : nullptr;
            if (i % 2 == 0 || members.rank == 0) {
              const Work sent = isend(out, group, peer, t);
              work ? static_cast<void>(work->wait()) : static_cast<void>(recv(in, group, peer, t));
              sent->wait();
            } else {
              work ? static_cast<void>(work->wait()) : static_cast<void>(recv(in, group, peer, t));
              send(out, group, peer, t);
            }
          } else {
            const auto works =
                batch_isend_irecv({TensorP2POp::isend(out, peer, t), TensorP2POp::irecv(in, peer, t)}, group);
            while (!works[1]->isCompleted()) std::this_thread::yield();
            works[0]->wait();
          }
          wrong += !torch::equal(in, out);
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  });
}

TEST(TensorP2P, CallbacksMayBeginMessages) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const int peer = 1 - members.rank;
    at::Tensor in = torch::zeros({1});
    std::promise<void> done;
    std::atomic<int> left = 100;
    std::function<void()> next = [&] {
      if (left-- == 0) return done.set_value();
      const Work work = irecv(in, group, peer);
      isend(torch::ones({1}), group, peer);
      work->getFuture()->addCallback([&](c10::ivalue::Future&) { next(); });
    };
    next();
    done.get_future().wait();
  });
}

TEST(TensorP2P, RefusesWhatCannotBe) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const at::Tensor tensor = torch::zeros({4});
    EXPECT_THROW(send(tensor, group, 2), UsageError);
    EXPECT_THROW(send(tensor, group, kAnySource), UsageError);
    EXPECT_THROW(recv(tensor, group, -3), UsageError);
    EXPECT_THROW(isend(tensor, group, 1 - members.rank, kAnyTag), UsageError);
    EXPECT_THROW(irecv(tensor, group, 1 - members.rank, -2), UsageError);
    EXPECT_THROW(send(at::Tensor(), group, 1 - members.rank), UsageError);
    EXPECT_THROW(recv(torch::zeros({1}).expand({4}), group, 1 - members.rank), UsageError);
    EXPECT_THROW(send(tensor, nullptr, 1 - members.rank), UsageError);
    barrier(group);
  });
  const ProcessGroup alone = init_process_group();
  EXPECT_THROW(send(torch::zeros({1}), alone, 0), UsageError);
  EXPECT_THROW(irecv(torch::zeros({1}), alone, 0), UsageError);
}

TEST(TensorP2P, AShorterMessageFailsItsReceiveAlone) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    if (members.rank == 0) {
      send(torch::zeros({4}), group, 1);
      send(torch::ones({5}), group, 1);
      return;
    }
    at::Tensor tensor = torch::zeros({5});
    try {
      recv(tensor, group, 0);
      ADD_FAILURE() << "received too little";
    } catch (const CollectiveMismatch& error) {
      EXPECT_NE(std::string(error.what()).find("rank 0 sent 16 bytes (tag 0) for a tensor of 20"), std::string::npos)
          << error.what();
    }
    recv(tensor, group, 0);
    EXPECT_EQ(tensor.sum().item<float>(), 5);
    EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::SUCCESS);
  });
}

TEST(TensorP2P, ALongerMessageFailsBothSides) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    if (members.rank == 0) {
      EXPECT_THROW(send(torch::zeros({1 << 20}), group, 1), CollectiveMismatch);
    } else {
      EXPECT_THROW(recv(torch::zeros({5}), group, 0), CollectiveMismatch);
    }
    EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::COMM_ERROR);
    EXPECT_THROW(isend(torch::zeros({1}), group, 1 - members.rank)->wait(), CollectiveMismatch);
    barrier(group);  // Collectives go on.
  });
}

TEST(TensorP2P, EndsWithItsPeer) {
  run_ranks(3,
            [](const JobGroup& members) {
              const ProcessGroup group = init_process_group(members);
              at::Tensor in = torch::zeros({4});
              if (members.rank == 2) {
                barrier(group);
                kill(getpid(), SIGKILL);
              }
              // Waited for here, by a thread, and by the helper.
              const Work work = irecv(in, group, 2, members.rank);
              barrier(group);
              if (members.rank == 0) {
                EXPECT_THROW(recv(torch::zeros({1}), group, 2, 5), PeerLost);
              } else {
                while (!work->isCompleted()) std::this_thread::yield();
              }
              try {
                work->wait();
                ADD_FAILURE() << "received from the dead";
              } catch (const PeerLost& error) {
                EXPECT_EQ(error.ranks(), std::vector<int>{2}) << error.what();
              }
              EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::REMOTE_ERROR);
            },
            {.killed = {2}});
}

TEST(TensorP2P, HoldsToTheGroupsTimeout) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    const ProcessGroup patient = init_process_group(members, {.group_name = "patient"});
    if (members.rank == 0) {
      at::Tensor in = torch::zeros({4});
      group->setTimeout(50ms);
      const Work work = irecv(in, group, 1);
      EXPECT_ANY_THROW(work->wait(std::chrono::milliseconds(5)));  // c10d's own error; the message goes on.
      EXPECT_FALSE(work->isCompleted());
      EXPECT_THROW(work->wait(), TimeoutError);
      EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::TIMEOUT);
    }
    barrier(patient);
  });
}

TEST(TensorP2P, OutlivesItsGroup) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup end = init_process_group(members, {.group_name = "end"});
    ProcessGroup group = init_process_group(members);
    const std::int64_t many = 1 << 20;
    at::Tensor in = torch::zeros({many});
    const Work work = members.rank == 0 ? isend(torch::ones({many}), group, 1) : irecv(in, group, 0);
    group.reset();
    work->wait();
    if (members.rank == 1) {
      EXPECT_EQ(in.sum().item<float>(), static_cast<float>(many));
    }
    barrier(end);
  });
}

}  // namespace
}  // namespace retinue
