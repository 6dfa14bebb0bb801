#include "retinue/torch/divergence.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"

namespace retinue {
namespace {

using test::run_ranks;
using test::says;
using test::usage_error_of;

torch::nn::Sequential make_net() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8), torch::nn::Linear(8, 2));
}

/// What all ranks must get of a comparison that fails.
template <typename Compare>
std::string text_of_difference(const ProcessGroup& group, Compare compare) {
  std::string text;
  try {
    compare();
    ADD_FAILURE() << "nothing differs";
  } catch (const CollectiveMismatch& error) {
    text = error.what();
  }
  barrier(group);  // The group is as good as before.
  EXPECT_EQ(group->getDefaultBackend()->getError(), c10d::ErrorType::SUCCESS);
  return text;
}

class TensorDivergence : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, TensorDivergence, testing::Values("shm", "gloo"));

TEST_P(TensorDivergence, IsNoneOfTheSameTensors) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto net = make_net();
    check_same(*net, group);
    check_same(state_dict(*net), group);
    check_same("nothing", torch::empty({0}), group);
    check_same("half", torch::ones({3, 3}, torch::kHalf), group);
    // A view and a copy of it hold the same elements.
    const at::Tensor matrix = torch::arange(12).view({3, 4});
    check_same("columns", members.rank == 0 ? matrix.t() : matrix.t().contiguous(), group);
    const at::Tensor turning = torch::view_as_complex(torch::arange(8.0f).view({4, 2}));
    check_same("conjugate", members.rank == 0 ? turning.conj() : turning.conj().resolve_conj(), group);
  });
}

TEST_P(TensorDivergence, NamesTheTensorAndTheRank) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto net = make_net();
    if (members.rank == 1) {
      const torch::NoGradGuard no_grad;
      net->parameters()[4][0][3] += 1e-6;
    }
    const std::string text = text_of_difference(group, [&] { check_same(*net, group); });
    EXPECT_TRUE(says(text, "divergence_test.cpp:")) << text;
    EXPECT_TRUE(says(text, "\"2.weight\" (64 bytes) of rank 1 differs from that of ranks 0 and 2")) << text;
    const std::string names =
        text_of_difference(group, [&] { check_same(members.rank == 2 ? "bias" : "weight", torch::zeros({2}), group); });
    EXPECT_TRUE(says(names, "part 0 is \"bias\" on rank 2 and \"weight\" on ranks 0 and 1")) << names;
    const std::string sizes =
        text_of_difference(group, [&] { check_same("weight", torch::zeros({2 + members.rank / 2}), group); });
    EXPECT_TRUE(says(sizes, "\"weight\" has 12 bytes on rank 2 and 8 on ranks 0 and 1")) << sizes;
  });
}

TEST_P(TensorDivergence, ComparesParametersOfModulesAndBuffersOfStates) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto net = make_net();
    net->buffers()[0].fill_(members.rank);
    check_same(*net, group);
    const std::string text = text_of_difference(group, [&] { check_same(state_dict(*net), group); });
    EXPECT_TRUE(says(text, "\"1.running_mean\" (32 bytes) of rank 1 differs from that of rank 0")) << text;
  });
}

TEST_P(TensorDivergence, IsLookedForInEveryNthStep) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto net = make_net();
    TensorDivergenceCheck check(group, {.every_n_steps = 3});
    std::vector<bool> compared;
    for (int step = 0; step < 4; ++step) compared.push_back(check.step(*net));
    EXPECT_EQ(compared, (std::vector<bool>{true, false, false, true}));
    EXPECT_FALSE(check.step(*net));
    StateDict odd;
    odd.insert("rank", torch::full({1}, members.rank));
    EXPECT_FALSE(check.step(odd));
    const std::string text = text_of_difference(group, [&] { check.step(odd); });
    EXPECT_TRUE(says(text, "\"rank\" (8 bytes) of rank 1")) << text;
  });
}

TEST_P(TensorDivergence, OfDataParallelIsAnOption) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    DistributedDataParallel ddp(make_net(), group, {.check_divergence_every_n_steps = 2});
    const auto pass = [&] { ddp.forward(torch::ones({4, 4})).sum().backward(); };
    pass();
    {
      const torch::NoGradGuard no_grad;
      if (members.rank == 1) ddp.module().parameters()[1].fill_(0.5);
      ddp.forward(torch::ones({4, 4}));  // Doesn't train.
    }
    pass();
    const std::string text = text_of_difference(group, pass);
    EXPECT_TRUE(says(text, "divergence_test.cpp:")) << text;
    EXPECT_TRUE(says(text, "\"0.bias\" (32 bytes) of rank 1 differs from that of rank 0")) << text;
  });
}

TEST(ShmTensorDivergence, RefusesWhatItCannotCompare) {
  run_ranks(2, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members);
    EXPECT_TRUE(
        says(usage_error_of([&] { check_same("gone", at::Tensor(), group); }), "\"gone\": the tensor is undefined"));
    EXPECT_TRUE(says(usage_error_of([&] { check_same("sparse", torch::ones({2}).to_sparse(), group); }),
                     "\"sparse\": the tensor is sparse"));
    EXPECT_TRUE(says(usage_error_of([&] { check_same("outside", torch::ones({2}), {}); }), "group is null"));
    EXPECT_TRUE(
        says(usage_error_of([&] { TensorDivergenceCheck(group, {.every_n_steps = 0}); }), "every_n_steps is 0"));
    barrier(group);
  });
}

TEST_P(TensorDivergence, OfWhatOneRankCannotCompareIsNoticedByAll) {
  run_ranks(3, [](const JobGroup& members) {
    const ProcessGroup group = init_process_group(members, {.backend = GetParam()});
    const auto compare = [&] { check_same("weight", members.rank == 1 ? at::Tensor() : torch::ones({2}), group); };
    if (members.rank == 1) {
      EXPECT_TRUE(says(usage_error_of(compare), "\"weight\": the tensor is undefined"));
      barrier(group);
    } else {
      const std::string text = text_of_difference(group, compare);
      EXPECT_TRUE(says(text, "\"weight\" has 0 bytes on rank 1 and 8 on ranks 0 and 2")) << text;
    }
  });
}

TEST(ShmTensorDivergence, IsNothingInAWorldOfOne) {
  const ProcessGroup group = init_process_group({.world_size = 1, .rank = 0});
  check_same(*make_net(), group);
  EXPECT_TRUE(TensorDivergenceCheck(group).step(*make_net()));
}

}  // namespace
}  // namespace retinue
