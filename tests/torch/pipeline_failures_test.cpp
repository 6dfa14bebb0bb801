// What a pipeline does if one of its ranks fails; and several pipelines.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <csignal>
#include <stdexcept>
#include <string>

#include "retinue/base/error.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/pipeline_parallel.h"
#include "support/ranks.h"
#include "support/says.h"
#include "support/usage_error.h"
#include "torch/pipelined_net.h"
#include "torch/trained_net.h"

namespace retinue {
namespace {

namespace nn = torch::nn;
using test::Batch;
using test::expect_same_gradients;
using test::make_batch;
using test::make_model;
using test::mean_loss;
using test::own_part;
using test::run_training;
using test::says;
using test::squared_loss;
using test::usage_error_of;

class FailingPipeline : public test::OnRanks {};
INSTANTIATE_TEST_SUITE_P(Backends, FailingPipeline, FailingPipeline::values(), FailingPipeline::name_of);

/// Throws at a micro-batch, in forward or in backward.
struct ThrowsImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    if (forwards++ == forward_at) throw std::runtime_error("no forward today");
    const at::Tensor y = layer(x);
    if (y.requires_grad())
      y.register_hook([this](const at::Tensor&) {
        if (backwards++ == backward_at) throw std::runtime_error("no backward today");
      });
    return y;
  }
  void arm(int at_forward, int at_backward) {
    forwards = backwards = 0;
    forward_at = at_forward;
    backward_at = at_backward;
  }
  nn::Linear layer = register_module("layer", nn::Linear(2, 2));
  int forwards = 0;
  int backwards = 0;
  int forward_at = -1;
  int backward_at = -1;
};
TORCH_MODULE(Throws);

/// The rank that throws gets its exception, the others one that names it.
void expect_failure(Schedule1F1B& schedule, const PipelineBatch& batch, int thrower, const std::string& place,
                    const std::string& text) {
  std::string caught = "nothing";
  bool is_own = false;
  try {
    schedule.step(batch);
  } catch (const UsageError& error) {
    caught = error.what();
  } catch (const std::runtime_error& error) {
    caught = error.what();
    is_own = true;
  }
  const bool is_thrower = schedule.stage().stage_index() == thrower;
  EXPECT_EQ(is_own, is_thrower) << caught;
  EXPECT_TRUE(says(caught, text)) << caught;
  const std::string named = "Schedule1F1B: rank " + std::to_string(thrower) + ": in " + place;
  if (!is_thrower) {
    EXPECT_TRUE(says(caught, named)) << caught;
  }
}

TEST_P(FailingPipeline, EndsOnAllRanksIfOneThrows) {
  on_ranks([](const ProcessGroup& group) {
    const int rank = group->getRank();
    Throws module;
    bool loss_throws = false;
    const auto loss = [&](const at::Tensor& output, const at::Tensor& target) {
      if (loss_throws) throw std::runtime_error("no loss today");
      return squared_loss(output, target);
    };
    Schedule1F1B schedule({nn::Sequential(module), group}, {.n_microbatches = 4, .loss_fn = loss});
    const PipelineBatch batch{.input = torch::ones({8, 2}), .target = torch::ones({8, 2})};
    for (int thrower = 0; thrower < group->getSize(); ++thrower)
      for (const int micro : {0, 2, 3}) {
        const std::string of_micro = " of micro-batch " + std::to_string(micro);
        module->arm(rank == thrower ? micro : -1, -1);
        expect_failure(schedule, batch, thrower, "the forward" + of_micro, "no forward today");
        module->arm(-1, rank == thrower ? micro : -1);
        expect_failure(schedule, batch, thrower, "the backward" + of_micro, "no backward today");
        module->arm(-1, -1);
        EXPECT_NO_THROW(schedule.step(batch)) << "after an error";
      }
    loss_throws = true;
    expect_failure(schedule, batch, group->getSize() - 1, "the forward of micro-batch 0", "no loss today");
    loss_throws = false;
    module->zero_grad();
    schedule.step(batch);
    const double sum = module->layer->weight.grad().abs().sum().item<double>();
    module->zero_grad();
    schedule.step(batch);
    EXPECT_EQ(module->layer->weight.grad().abs().sum().item<double>(), sum) << "no message is left over";
  });
}

TEST_P(FailingPipeline, RefusesArgumentsOnAllRanks) {
  on_ranks([](const ProcessGroup& group) {
    const bool is_last = group->getRank() == group->getSize() - 1;
    const bool is_alone = group->getSize() == 1;
    nn::Sequential part(nn::Linear(2, 2));
    const auto make = [&](const Schedule1F1BOptions& options) {
      return usage_error_of([&] { Schedule1F1B({part, group}, options); });
    };
    const auto loss = squared_loss;
    EXPECT_TRUE(says(make({.n_microbatches = is_last ? 0 : 2, .loss_fn = loss}), "n_microbatches is 0"));
    EXPECT_TRUE(says(make({.n_microbatches = 2}), "the last stage needs one"));
    if (!is_alone) {
      EXPECT_TRUE(says(make({.n_microbatches = is_last ? 3 : 2, .loss_fn = loss}), "rank 0 has n_microbatches 2"));
    }
    Schedule1F1B schedule({part, group}, {.n_microbatches = 3, .loss_fn = loss});
    const at::Tensor rows = torch::ones({3, 2});
    const auto step = [&](const at::Tensor& input, const at::Tensor& target) {
      return usage_error_of([&] { schedule.step({.input = input, .target = target}); });
    };
    EXPECT_TRUE(says(step({}, rows), "rank 0: the input is undefined: it needs a row for each of 3"));
    EXPECT_TRUE(says(step(torch::ones({2, 2}), rows), "rank 0: the input is of shape [2, 2]"));
    EXPECT_TRUE(says(step(rows, {}), "the target is undefined"));
    EXPECT_TRUE(says(step(rows, torch::ones({4, 2})), "the input of rank 0 has 3 rows, but the target of rank"));
    if (!is_alone) {
      const std::string text = usage_error_of([&] {
        const PipelineBatch batch{.input = rows, .target = rows};
        is_last ? schedule.eval(batch) : schedule.step(batch);
      });
      EXPECT_TRUE(says(text, "rank 0 calls step, but rank")) << text;
    }
    EXPECT_TRUE(says(usage_error_of([&] { PipelineStage(nn::Sequential(), group); }), "the module is empty"));
    EXPECT_THROW(PipelineStage(part, ProcessGroup()), UsageError);
    EXPECT_NO_THROW(schedule.step({.input = rows, .target = rows})) << "the group is usable";
  });
}

/// Kills its own process in the forward of a micro-batch.
struct DiesImpl : nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    if (forwards++ == 2 && dies) raise(SIGKILL);
    return layer(x);
  }
  nn::Linear layer = register_module("layer", nn::Linear(2, 2));
  int forwards = 0;
  bool dies = false;
};
TORCH_MODULE(Dies);

TEST(PipelineRanks, GetPeerLostIfOneIsKilled) {
  for (const char* backend : {"shm", "gloo"})
    for (const int victim : {0, 1, 2})
      test::run_ranks(
          3,
          [&](const JobGroup& members) {
            at::set_num_threads(1);
            const ProcessGroup group = init_process_group(members, {.backend = backend});
            Dies module;
            module->dies = group->getRank() == victim;
            Schedule1F1B schedule({nn::Sequential(module), group}, {.n_microbatches = 6, .loss_fn = squared_loss});
            EXPECT_THROW(schedule.step({.input = torch::ones({6, 2}), .target = torch::ones({6, 2})}), PeerLost)
                << backend << ", rank " << group->getRank() << ", victim " << victim;
          },
          {.killed = {victim}});
}

/// Ranks 0 and 1 are one pipeline, 2 and 3 another one with another half of the batch.
TEST(PipelineRanks, AverageOverDataParallelGroups) {
  for (const char* backend : {"shm", "gloo"})
    run_training(4, backend, [](const ProcessGroup& world) {
      const int rank = world->getRank();
      const ProcessGroup pipeline = new_subgroups(2, world);
      const ProcessGroup replicas = new_subgroups_by_enumeration({{0, 2}, {1, 3}}, world);
      nn::Sequential whole = make_model();
      nn::Sequential part = own_part(make_model(), pipeline);
      if (rank >= 2) {
        const torch::NoGradGuard no_grad;
        for (at::Tensor& parameter : part->parameters()) parameter.add_(1);  // Rank 0's of the replicas count.
      }
      PipelineStage stage(part, pipeline, {.data_parallel_group = replicas});
      bool loss_throws = false;
      const auto loss = [&](const at::Tensor& output, const at::Tensor& target) {
        if (loss_throws) throw std::runtime_error("no loss today");
        return mean_loss(output, target);
      };
      Schedule1F1B schedule(stage, {.n_microbatches = 2, .loss_fn = loss});
      const Batch batch = make_batch(0, 8);
      const auto half = [&](const at::Tensor& all) { return all.narrow(0, rank < 2 ? 0 : 4, 4); };
      mean_loss(whole->forward(batch.input), batch.target).backward();
      schedule.step({.input = half(batch.input), .target = half(batch.target)});
      expect_same_gradients(part, whole, "of both halves");

      loss_throws = rank == 3;
      try {
        schedule.step({.input = half(batch.input), .target = half(batch.target)});
        ADD_FAILURE() << "rank " << rank << " threw nothing";
      } catch (const std::runtime_error& error) {
        EXPECT_TRUE(says(error.what(), "no loss today")) << error.what();
      }
      loss_throws = false;
      part->zero_grad();
      schedule.step({.input = half(batch.input), .target = half(batch.target)});
      expect_same_gradients(part, whole, "after an error");
    });
}

}  // namespace
}  // namespace retinue
