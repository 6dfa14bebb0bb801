// Sparse gradients, and where in memory gradients are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::make_mlp;
using test::run_ranks;
using test::run_training;
using test::says;
using test::seeded;
using test::usage_error_of;

class DataParallelGradients : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Backends, DataParallelGradients, testing::Values("shm", "gloo"));

/// Rows of a table by their indices, and then a layer.
struct LookupImpl : nn::Module {
  explicit LookupImpl(bool sparse)
      : table(register_module("table", nn::Embedding(nn::EmbeddingOptions(5, 4).sparse(sparse)))),
        layer(register_module("layer", nn::Linear(4, 3))) {}
  at::Tensor forward(const at::Tensor& indices) { return layer(torch::tanh(table(indices))); }
  nn::Embedding table;
  nn::Linear layer;
};
TORCH_MODULE(Lookup);

TEST_P(DataParallelGradients, OfEmbeddingsStaySparse) {
  for (const int ranks : {1, 2, 3})
    run_training(ranks, GetParam(), [](const ProcessGroup& group) {
      Lookup alone = seeded(6, [] { return Lookup(/*sparse=*/false); });
      DistributedDataParallel ddp(seeded(6, [] { return Lookup(/*sparse=*/true); }), group);
      torch::optim::SGD optimizer(ddp.parameters(), 0.5);
      torch::optim::SGD optimizer_alone(alone->parameters(), 0.5);
      const auto indices = [&](int step, int rank) { return torch::tensor({step % 5, (step + rank) % 5, rank}); };
      for (int step = 0; step < 4; ++step) {
        optimizer.zero_grad();
        optimizer_alone.zero_grad();
        for (int part = 0; part < 2; ++part) {  // Two backwards in one step.
          ddp(indices(step + part, group->getRank())).square().sum().backward();
          for (int rank = 0; rank < group->getSize(); ++rank)
            (alone(indices(step + part, rank)).square().sum() / group->getSize()).backward();
        }
        EXPECT_EQ(ddp->table->weight.grad().layout(), at::kSparse);
        optimizer.step();
        optimizer_alone.step();
        EXPECT_TRUE(torch::allclose(ddp->table->weight, alone->table->weight, 1e-4, 1e-5)) << "step " << step;
        EXPECT_TRUE(torch::allclose(ddp->layer->weight, alone->layer->weight, 1e-4, 1e-5)) << "step " << step;
      }
    });
}

TEST_P(DataParallelGradients, MayBeSparseOnSomeRanksAndMissingOnOthers) {
  run_training(3, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(Lookup(/*sparse=*/true), group, {.find_unused_parameters = true});
    ddp->table->weight.set_data(torch::ones({5, 4}));
    const auto loss = [&] {
      return group->getRank() == 1 ? ddp(torch::tensor({2})).sum() : ddp->layer(torch::ones({2, 4})).sum();
    };
    at::Tensor first = loss();
    if (group->getRank() != 1) ddp(torch::tensor({0}));  // As many forwards.
    first.backward();
    const at::Tensor& gradient = ddp->table->weight.grad();
    ASSERT_EQ(gradient.layout(), at::kSparse);
    EXPECT_EQ(gradient._indices().item<std::int64_t>(), 2);
    const at::Tensor kept = gradient;
    const at::Tensor copy = gradient.clone();
    ddp->zero_grad();
    ddp(torch::tensor({4})).sum().backward();
    EXPECT_TRUE(torch::equal(kept.to_dense(), copy.to_dense())) << "a kept gradient";
    EXPECT_EQ(ddp->table->weight.grad()._indices().item<std::int64_t>(), 4);
  });
}

struct TableImpl : nn::Module {
  TableImpl() : rows(register_parameter("rows", torch::ones({4, 2}))) {}
  at::Tensor forward(const at::Tensor& indices, bool sparse) {
    return torch::embedding(rows, indices, -1, /*scale_grad_by_freq=*/false, sparse);
  }
  at::Tensor rows;
};
TORCH_MODULE(Table);

TEST_P(DataParallelGradients, MayBeSparseAtTimes) {
  run_training(2, GetParam(), [](const ProcessGroup& group) {
    DistributedDataParallel ddp(Table(), group);
    const at::Tensor indices = torch::tensor({1, 1 + group->getRank()});
    for (const bool sparse : {false, true, false, true}) {
      ddp->zero_grad();
      ddp(indices, sparse).sum().backward();
      EXPECT_EQ(ddp->rows.grad().layout(), sparse ? at::kSparse : at::kStrided);
      EXPECT_TRUE(torch::equal(ddp->rows.grad().to_dense().select(1, 0), torch::tensor({0.0f, 1.5f, 0.5f, 0.0f})));
    }
    ddp->zero_grad();
    const std::string text = usage_error_of([&] { ddp(indices, group->getRank() == 0).sum().backward(); });
    EXPECT_TRUE(says(text, "the gradient of parameter \"rows\" is sparse on some ranks and dense on others")) << text;
    ddp->zero_grad();
    EXPECT_NO_THROW(ddp(indices, false).sum().backward());
  });
}

/// Sees where the gradient is before it is averaged.
struct NotesMemory : torch::autograd::PostAccumulateGradHook {
  explicit NotesMemory(const void*& seen) : noted(seen) {}
  void operator()(const torch::autograd::Variable& parameter) override { noted = parameter.grad().const_data_ptr(); }
  const void*& noted;
};

TEST(ShmDataParallelGradients, AreMadeInJobMemoryWhereTheyStay) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    nn::Sequential net(nn::Linear(6, 1500), nn::Tanh(), nn::Linear(1500, 3), nn::Flatten());
    DistributedDataParallel ddp(net, init_process_group(members));
    const at::Tensor weight = net->parameters()[0];
    const void* made = nullptr;
    torch::autograd::impl::set_post_acc_grad_hooks(weight, std::make_unique<NotesMemory>(made));
    for (const bool set_to_none : {true, false, true, true}) {
      if (set_to_none)
        ddp->zero_grad();
      else
        weight.mutable_grad().zero_();
      ddp(torch::rand({2, 6})).square().sum().backward();
      EXPECT_TRUE(members.memory->contains(made));
      EXPECT_EQ(weight.grad().const_data_ptr(), made);
    }
  });
}

/// By a module with two such gradients at a time, and one slot: the other one is made elsewhere, and stays there.
TEST(ShmDataParallelGradients, StayTheSameTensorWhileTheyAreSetToZero) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    nn::Linear net(1500, 4);
    DistributedDataParallel ddp(net, init_process_group(members));
    const auto backward = [&](float factor) { ddp(torch::full({2, 1500}, factor)).sum().backward(); };
    backward(1);
    const at::Tensor first = net->weight.grad();  // Has the slot.
    ddp->zero_grad();
    backward(2);
    const at::Tensor second = net->weight.grad();
    EXPECT_FALSE(members.memory->contains(second.const_data_ptr()));
    for (const float factor : {3.0f, 4.0f}) {
      second.zero_();
      backward(factor);
      EXPECT_TRUE(net->weight.grad().is_same(second));
      EXPECT_TRUE(torch::equal(second, torch::full({4, 1500}, 2 * factor)));
    }
    EXPECT_TRUE(torch::equal(first, torch::full({4, 1500}, 2.0f)));
  });
}

TEST(ShmDataParallelGradients, AreInJobMemoryAgainWhenNoneIsKept) {
  run_ranks(2, [](const JobGroup& members) {
    at::set_num_threads(1);
    DistributedDataParallel ddp(make_mlp(), init_process_group(members));
    at::Tensor kept;
    std::vector<bool> in_job_memory;
    for (int step = 0; step < 4; ++step) {
      ddp->zero_grad();
      ddp(torch::ones({2, 6})).sum().backward();
      const at::Tensor parameter = ddp->parameters()[0];
      const at::Tensor& gradient = parameter.mutable_grad();
      in_job_memory.push_back(members.memory->contains(gradient.data_ptr()));
      if (step == 1) kept = gradient;
      if (step == 2) kept.reset();
    }
    EXPECT_EQ(in_job_memory, (std::vector<bool>{true, true, false, true}));
  });
}

}  // namespace
}  // namespace retinue
