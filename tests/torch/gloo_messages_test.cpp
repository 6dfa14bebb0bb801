// Messages between ranks that share no memory, which gloo carries in two parts.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/messages.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/gloo_scene.h"

namespace retinue {
namespace {

using namespace std::chrono_literals;
using test::by_gloo;
using test::number;
using test::run_ranks;
using test::says;
using test::usage_error_of;

TEST(GlooMessages, KeepTheirOrderHoweverTheyAreWaitedFor) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    if (members.rank != 0) {
      std::vector<Work> works;
      for (int i = 0; i < 6; ++i) works.push_back(isend(number(10 * members.rank + i), group, 0, 5));
      for (const Work& work : works) work->wait();
      return;
    }
    std::vector<at::Tensor> got;
    std::vector<Work> works;
    const auto begin = [&](int source) {
      got.push_back(number(-1));
      works.push_back(irecv(got.back(), group, source, 5));
    };
    for (int i = 0; i < 3; ++i) begin(1);
    for (std::size_t i = 3; i-- > 0;) works[i]->wait();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)][0].item<int>(), 10 + i);
    // Of any source: those of each rank in their order, whichever come first.
    got.clear();
    works.clear();
    for (int i = 0; i < 7; ++i) begin(kAnySource);
    std::vector<int> of_1, of_2;
    for (std::size_t i = 7; i-- > 0;) works[i]->wait();
    for (std::size_t i = 0; i < 7; ++i) (works[i]->sourceRank() == 1 ? of_1 : of_2).push_back(got[i][0].item<int>());
    for (std::size_t i = 0; i < of_1.size(); ++i) EXPECT_EQ(of_1[i], 13 + static_cast<int>(i));
    for (std::size_t i = 0; i < of_2.size(); ++i) EXPECT_EQ(of_2[i], 20 + static_cast<int>(i));
    // And then of one rank again.
    const int left_of_1 = 3 - static_cast<int>(of_1.size());
    for (int i = 0; i < left_of_1; ++i) {
      at::Tensor rest = number(-1);
      recv(rest, group, 1, 5);
      EXPECT_EQ(rest[0].item<int>(), 16 - left_of_1 + i);
    }
    for (int i = static_cast<int>(of_2.size()); i < 6; ++i) {
      at::Tensor rest = number(-1);
      recv(rest, group, 2, 5);
      EXPECT_EQ(rest[0].item<int>(), 20 + i);
    }
  });
}

TEST(GlooMessages, OfAnotherSizeFailTheirReceiveAlone) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    const int peer = 1 - members.rank;
    for (const std::int64_t sent : {1, 5, 0, 100000}) {
      if (members.rank == 0) {
        send(number(7, sent), group, peer);
      } else {
        at::Tensor got = number(-1);
        try {
          recv(got, group, peer);
          ADD_FAILURE() << "the sizes went together";
        } catch (const CollectiveMismatch& error) {
          EXPECT_TRUE(says(error.what(), fmt::format("rank 0 sent {} bytes (tag 0) for a tensor of 12", 4 * sent)))
              << error.what();
        }
      }
    }
    for (int i = 0; i < 3; ++i) {
      const Work sent = isend(number(members.rank), group, peer);
      at::Tensor got = number(-1);
      recv(got, group, peer);
      sent->wait();
      EXPECT_EQ(got[2].item<int>(), peer);
    }
    barrier(group);
  });
}

TEST(GlooMessages, DontMeetOtherOperations) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    const int peer = 1 - members.rank;
    std::vector<Work> works;
    std::vector<at::Tensor> got;
    for (int tag = 0; tag < 20; ++tag) {
      got.push_back(number(-1));
      works.push_back(isend(number(tag), group, peer, tag));
      works.push_back(irecv(got.back(), group, peer, tag));
    }
    monitored_barrier(group);
    at::Tensor sum = torch::ones({1000});
    all_reduce(sum, group);
    monitored_barrier(group);
    for (const Work& work : works) work->wait();
    for (int tag = 0; tag < 20; ++tag) EXPECT_EQ(got[static_cast<std::size_t>(tag)][0].item<int>(), tag);
    EXPECT_EQ(sum[999].item<float>(), 2);
  });
}

TEST(GlooMessages, RefuseWhatCannotBe) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    at::Tensor tensor = number(1);
    EXPECT_TRUE(
        says(usage_error_of([&] { send(tensor, group, members.rank); }), "must be another rank in the group's"));
    EXPECT_TRUE(says(usage_error_of([&] { send(tensor, group, 3); }), "rank 3"));
    EXPECT_TRUE(says(usage_error_of([&] { recv(tensor, group, (members.rank + 1) % 3, kAnyTag); }),
                     "kAnyTag is not supported"));
    EXPECT_TRUE(says(usage_error_of([&] { isend(tensor, group, (members.rank + 1) % 3, 1 << 29); }), "tags are 0 to"));
    const std::vector<TensorP2POp> both = {TensorP2POp::irecv(number(0), kAnySource, 4),
                                           TensorP2POp::irecv(number(0), (members.rank + 1) % 3, 4)};
    EXPECT_TRUE(says(usage_error_of([&] { batch_isend_irecv(both, group); }), "in flight with tag 4"));
    barrier(group);
    const pid_t child = fork();
    if (child == 0) {
      const bool refused =
          says(usage_error_of([&] { send(tensor, group, (members.rank + 1) % 3); }), "is a fork() of") &&
          says(usage_error_of([&] { barrier(group); }), "is a fork() of");
      ProcessGroup left = group;
      destroy_process_group(left);
      const_cast<ProcessGroup&>(group).reset();
      _exit(refused ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    all_reduce(tensor, group);
    EXPECT_EQ(tensor[0].item<int>(), 3);
  });
}

/// Tags of data are hashes, and those of these two are the same.
TEST(GlooMessages, WhoseHashesAreTheSameAreNotTakenForEachOther) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = by_gloo(members);
    constexpr int kOne = 70420;
    constexpr int kOther = 1359;
    if (members.rank == 1) {
      const Work one = isend(number(1, 1), group, 0, kOne);
      const Work other = isend(number(2, 1), group, 0, kOther);
      one->wait();
      other->wait();
    } else {
      at::Tensor other = number(-1, 1);
      at::Tensor one = number(-1, 1);
      const Work first = irecv(other, group, 1, kOther);
      const Work second = irecv(one, group, 1, kOne);
      for (const Work& work : {first, second}) try {
          work->wait();
          ADD_FAILURE() << "if the hash is another now, find two such tags anew";
        } catch (const Error& error) {
          EXPECT_TRUE(says(error.what(), "belongs to another message")) << error.what();
        }
    }
    barrier(group);
  });
}

TEST(GlooMessages, OfARankThatDiesAreLost) {
  run_ranks(2,
            [](const JobGroup& members) {
              const ProcessGroup group = by_gloo(members);
              barrier(group);
              if (members.rank == 1) raise(SIGKILL);
              at::Tensor got = number(-1);
              EXPECT_THROW(recv(got, group, kAnySource), PeerLost);
            },
            {.killed = {1}});
}

}  // namespace
}  // namespace retinue
