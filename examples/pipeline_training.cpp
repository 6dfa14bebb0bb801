// A model whose layers are divided among the ranks, through which batches pass in micro-batches.
// [includes]
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/torch/groups.h"
#include "retinue/torch/pipeline_parallel.h"
#include "retinue/torch/process_group.h"

namespace nn = torch::nn;
// [/includes]

namespace {

torch::Tensor target_of(const torch::Tensor& x) {
  return torch::sin(3 * x).sum(1, /*keepdim=*/true);
}

// [train]
nn::Sequential make_model() {
  return nn::Sequential(nn::Linear(2, 64), nn::Tanh(), nn::Linear(64, 64), nn::Tanh(), nn::Linear(64, 1));
}

torch::Tensor loss_of(const torch::Tensor& output, const torch::Tensor& target) {
  return torch::mse_loss(output, target);
}

void train(retinue::RankContext& context) {
  torch::set_num_threads(context.cpus_per_rank());
  const retinue::ProcessGroup group = retinue::init_process_group(context);

  torch::manual_seed(1);  // All ranks make the same model and keep their parts of it.
  const nn::Sequential part = retinue::split_sequential(make_model(), /*split_points=*/{2})[group->getRank()];
  retinue::Schedule1F1B schedule({part, group}, {.n_microbatches = 4, .loss_fn = loss_of});
  torch::optim::Adam optimizer(part->parameters(), /*lr=*/0.01);

  std::vector<torch::Tensor> losses;
  double first = 0;
  for (int step = 0; step < 200; ++step) {
    const torch::Tensor x = torch::rand({64, 2});  // The same on all ranks, which have the same seed.
    optimizer.zero_grad();
    schedule.step({.input = x, .target = target_of(x), .losses = &losses});
    optimizer.step();
    if (step == 0 && !losses.empty()) first = torch::stack(losses).mean().item<double>();
  }
  fmt::print("stage {}: {} modules\n", group->getRank(), part->size());
  if (schedule.stage().is_last()) {  // Only it has losses.
    const bool has_learned = torch::stack(losses).mean().item<double>() < first / 5;
    fmt::print("the loss fell {}\n", has_learned ? "to less than a fifth" : "too little");
  }
}
// [/train]

// [replicas]
/// Four ranks: two pipelines of two stages, each of which has another batch.
void train_replicas(retinue::RankContext& context) {
  const retinue::ProcessGroup world = retinue::init_process_group(context);
  const retinue::ProcessGroup pipeline = retinue::new_subgroups(2, world);                                // 01, 23
  const retinue::ProcessGroup replicas = retinue::new_subgroups_by_enumeration({{0, 2}, {1, 3}}, world);  // Of a stage.

  const nn::Sequential part = retinue::split_by_parameters(make_model(), pipeline->getSize())[pipeline->getRank()];
  retinue::PipelineStage stage(part, pipeline, {.data_parallel_group = replicas});  // All get rank 0's and rank 1's.
  retinue::Schedule1F1B schedule(stage, {.n_microbatches = 4, .loss_fn = loss_of});
  torch::optim::SGD optimizer(part->parameters(), /*lr=*/0.1);

  torch::manual_seed(replicas->getRank());  // Another batch in each pipeline.
  for (int step = 0; step < 5; ++step) {
    const torch::Tensor x = torch::rand({64, 2});
    optimizer.zero_grad();
    schedule.step({.input = x, .target = target_of(x)});  // Averages the gradients over the replicas.
    optimizer.step();
  }
}
// [/replicas]

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<train>({.nprocs = 2});
  retinue::spawn<train_replicas>({.nprocs = 4});
  fmt::print("trained two pipelines together\n");
}
