/// Trains with an optimizer whose work and state are divided among the ranks, which have one copy of the parameters.
// [includes]
#include <fmt/format.h>
#include <torch/torch.h>

#include <memory>
#include <utility>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/sharded_optimizer.h"

namespace nn = torch::nn;
using Model = retinue::DistributedDataParallel<nn::Sequential>;
// [/includes]

// [groups]
/// No weight decay for biases.
std::vector<torch::optim::OptimizerParamGroup> groups_of(const Model& model) {
  std::vector<at::Tensor> weights, biases;
  for (const at::Tensor& parameter : model.parameters()) (parameter.dim() > 1 ? weights : biases).push_back(parameter);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(weights);
  groups.emplace_back(biases,
                      std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(0.01).weight_decay(0)));
  return groups;
}
// [/groups]

// [scaling]
/// A step with a scaled loss. Returns the scale for the next one.
double scaled_step(retinue::ShardedOptimizerBase& optimizer, const at::Tensor& loss, double scale) {
  optimizer.zero_grad();
  (loss * scale).backward();
  const bool is_finite = optimizer.unscale_(scale);
  optimizer.clip_grad_norm_(1.0);
  optimizer.step();  // Nothing, if a gradient is not finite.
  return is_finite ? scale : scale / 2;
}
// [/scaling]

// [program]
/// Learns the sine of 3x.
void train(retinue::RankContext& context) {
  torch::set_num_threads(context.cpus_per_rank());
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  nn::Sequential net(nn::Linear(1, 256), nn::Tanh(), nn::Linear(256, 256), nn::Tanh(), nn::Linear(256, 1));
  Model model(net, group, {.share_parameters = true});
  retinue::ShardedOptimizer<torch::optim::AdamW> optimizer(model, groups_of(model), torch::optim::AdamWOptions(0.01));
  torch::optim::StepLR scheduler(optimizer, /*step_size=*/50, /*gamma=*/0.5);

  torch::manual_seed(context.rank());
  for (int step = 0; step < 200; ++step) {
    const at::Tensor x = torch::rand({64, 1});  // Of each rank.
    const at::Tensor loss = torch::mse_loss(model(x), torch::sin(3 * x));
    optimizer.zero_grad();
    loss.backward();
    optimizer.clip_grad_norm_(1.0);
    optimizer.step();  // Averages the gradients, and updates this rank's slice of the parameters.
    scheduler.step();
    if (context.rank() == 0 && step % 50 == 49) fmt::print("step {}: {:.4f}\n", step + 1, loss.item<float>());
  }
}

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<train>({.nprocs = 2});
}
// [/program]
