// [program]
#include <fmt/format.h>
#include <torch/torch.h>

#include <utility>

#include "retinue/launch/spawn.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"

/// Learns y = 2x + 1 from a thousand points, of which each rank sees its part.
void train(retinue::RankContext& context) {
  torch::set_num_threads(context.cpus_per_rank());
  const retinue::ProcessGroup group = retinue::init_process_group(context);

  torch::nn::Linear net(1, 1);
  retinue::DistributedDataParallel model(net, group);  // All ranks get rank 0's parameters.
  torch::optim::SGD optimizer(model.parameters(), /*lr=*/0.2);

  auto points = torch::data::datasets::TensorDataset(torch::linspace(-1, 1, 1000).unsqueeze(1))
                    .map(torch::data::transforms::Stack<torch::data::TensorExample>());
  retinue::DistributedSampler sampler(1000, group);
  auto loader = torch::data::make_data_loader(std::move(points), sampler, /*options=*/50);

  for (int epoch = 0; epoch < 10; ++epoch) {
    sampler.set_epoch(epoch);  // Else every epoch has the same order.
    for (const auto& batch : *loader) {
      optimizer.zero_grad();
      torch::mse_loss(model(batch.data), 2 * batch.data + 1).backward();  // Averages the gradients over the ranks.
      optimizer.step();
    }
  }
  if (context.rank() == 0) fmt::print("y = {:.2f} x + {:.2f}\n", net->weight.item<float>(), net->bias.item<float>());
}

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<train>({.nprocs = 2});
}
// [/program]
