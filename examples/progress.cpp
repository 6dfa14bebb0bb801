/// Learns y = sin(6x), and logs loss, step times and weights for TensorBoard and as JSON lines. Arguments: the folder
/// for logs, and the number of epochs.
#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "retinue/launch/spawn.h"
#include "retinue/progress/step_timer.h"
#include "retinue/progress/summary_writer.h"
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
void train(retinue::RankContext& context, const std::string& log_dir, int epochs) {
  torch::set_num_threads(context.cpus_per_rank());
  torch::manual_seed(1);
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  nn::Linear first(1, 32);
  nn::Sequential net(first, nn::Tanh(), nn::Linear(32, 1));
  retinue::DistributedDataParallel model(net, group);
  torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(0.01));
  retinue::DistributedSampler sampler(kPoints, group);

  std::optional<retinue::SummaryWriter> writer;
  if (context.rank() == 0) writer.emplace(log_dir);
  std::int64_t step = 0;
  retinue::StepTimer timer;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    sampler.set_epoch(epoch);
    sampler.reset();
    while (const auto indices = sampler.next(/*batch_size=*/20)) {
      const at::Tensor x = points(*indices);
      timer.data_loaded();
      optimizer.zero_grad();
      const at::Tensor loss = torch::mse_loss(model(x), torch::sin(6 * x));
      loss.backward();
      optimizer.step();
      timer.step();
      ++step;
      if (!writer) continue;
      writer->add_scalar("loss/train", loss.item<double>(), step);
      if (step % 10 == 0) timer.log(*writer, step);
    }
  }
  if (writer) {
    const at::Tensor weights = first->weight.detach().contiguous();
    writer->add_histogram("weights/first", std::span(weights.const_data_ptr<float>(), weights.numel()), step);
    writer->add_text("result", "trained " + std::to_string(step) + " steps", step);
  }
}
// [/train]

}  // namespace

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  const std::string log_dir = argc > 1 ? argv[1] : "";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 4;
  try {
    if (runtime.is_rank()) {
      retinue::RankContext context = runtime.rank_context();
      train(context, log_dir, epochs);
    } else {
      retinue::spawn<train>({.nprocs = 2}, log_dir, epochs);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
