/// Learns y = sin(6x), with a checkpoint after every 10 steps, and continues at the newest one. Arguments: the folder
/// for checkpoints, and the number of epochs.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/distributed_sampler.h"
#include "retinue/torch/process_group.h"

namespace {

namespace nn = torch::nn;

constexpr int kPoints = 1000;

at::Tensor points(const std::vector<std::size_t>& indices) {
  const std::vector<std::int64_t> places(indices.begin(), indices.end());
  return torch::tensor(places).unsqueeze(1) / double{kPoints};
}

// [train]
void train(retinue::RankContext& context, const std::string& folder, int epochs) {
  torch::set_num_threads(context.cpus_per_rank());
  torch::manual_seed(1);
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  nn::Sequential net(nn::Linear(1, 32), nn::Tanh(), nn::Linear(32, 1));
  retinue::DistributedDataParallel model(net, group);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  retinue::DistributedSampler sampler(kPoints, group);

  retinue::Checkpoint checkpoint(folder, group, {.keep = 3, .async = true});
  retinue::CheckpointState state{.model = model, .optimizer = optimizer, .sampler = sampler};
  std::int64_t step = checkpoint.load_newest(state).value_or(0);
  if (context.rank() == 0) std::printf("begins after step %ld\n", step);

  double loss = 0;
  for (std::int64_t epoch = sampler.epoch(); epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();  // To the indices that are left of the loaded epoch, and to all of later ones.
    state.consumed = 0;
    while (const auto indices = sampler.next(/*batch_size=*/20)) {
      const at::Tensor x = points(*indices);
      optimizer.zero_grad();
      const at::Tensor error = torch::mse_loss(model(x), torch::sin(6 * x));
      error.backward();
      optimizer.step();
      loss = error.item<double>();
      state.consumed += indices->size();
      if (++step % 10 == 0) checkpoint.save(step, state);
    }
  }
  checkpoint.wait();
  if (context.rank() == 0) std::printf("step %ld, loss %.9f\n", step, loss);
}
// [/train]

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: checkpoints FOLDER EPOCHS\n");
    return 2;
  }
  const std::string folder = argv[1];
  const int epochs = std::atoi(argv[2]);
  // [start]
  if (runtime.is_rank()) {  // By retinue run.
    retinue::RankContext context = runtime.rank_context();
    train(context, folder, epochs);
  } else {
    retinue::spawn<train>({.nprocs = 2}, folder, epochs);
  }
  // [/start]
}
