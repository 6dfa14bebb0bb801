// A classifier whose layers are divided among the ranks.
// [includes]
#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "retinue/launch/spawn.h"
#include "retinue/torch/functional.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/tensor_parallel.h"
// [/includes]

constexpr std::int64_t kClasses = 8;

// [model]
/// Three layers. Each rank has half of each weight.
struct ClassifierImpl : torch::nn::Module {
  explicit ClassifierImpl(const retinue::ProcessGroup& group)
      : up(register_module("up", retinue::ColumnParallelLinear(
                                     2, 128, group, retinue::ColumnParallelLinearOptions{.gather_output = false}))),
        down(register_module(
            "down",
            retinue::RowParallelLinear(128, 64, group, retinue::RowParallelLinearOptions{.input_is_parallel = true}))),
        head(register_module(
            "head", retinue::ColumnParallelLinear(64, kClasses, group,
                                                  retinue::ColumnParallelLinearOptions{.gather_output = false}))) {}

  /// Returns the logits of this rank's classes.
  torch::Tensor forward(const torch::Tensor& x) { return head(torch::relu(down(torch::relu(up(x))))); }

  retinue::ColumnParallelLinear up;
  retinue::RowParallelLinear down;
  retinue::ColumnParallelLinear head;
};
TORCH_MODULE(Classifier);
// [/model]

/// Points of a square, and in which of eight sectors each lies.
std::pair<torch::Tensor, torch::Tensor> make_batch(std::int64_t points) {
  const torch::Tensor x = torch::rand({points, 2}) * 2 - 1;
  const torch::Tensor angle = torch::atan2(x.select(1, 1), x.select(1, 0)) / (2 * M_PI) + 0.5;
  return {x, (angle * kClasses).floor().clamp(0, kClasses - 1).to(torch::kLong)};
}

// [train]
void train(retinue::RankContext& context) {
  torch::set_num_threads(context.cpus_per_rank());
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  Classifier model(group);
  torch::optim::Adam optimizer(model->parameters(), /*lr=*/0.01);

  torch::manual_seed(7);  // All ranks have the same batches.
  double first = 0;
  double last = 0;
  for (int step = 0; step < 200; ++step) {
    const auto [x, target] = make_batch(256);
    optimizer.zero_grad();
    const torch::Tensor loss = retinue::vocab_parallel_cross_entropy(model(x), target, group);
    loss.backward();
    optimizer.step();
    (step == 0 ? first : last) = loss.item<double>();
  }
  if (context.rank() == 0)
    fmt::print("{} weights on each rank; the loss fell {}\n", model->up->weight.numel() + model->down->weight.numel(),
               last < first / 5 ? "to less than a fifth" : "too little");
}
// [/train]

// [functional]
/// Mean and variance of all ranks' batches, through which gradients flow to all ranks.
torch::Tensor normalised(const torch::Tensor& x, const retinue::ProcessGroup& group) {
  const torch::Tensor moments = torch::stack({x.mean(0), x.square().mean(0)});
  const torch::Tensor of_all = retinue::functional::all_reduce(moments, group, {.op = c10d::ReduceOp::AVG});
  const torch::Tensor variance = of_all[1] - of_all[0].square();
  return (x - of_all[0]) / (variance + 1e-5).sqrt();
}
// [/functional]

void normalise(retinue::RankContext& context) {
  const retinue::ProcessGroup group = retinue::init_process_group(context);
  torch::manual_seed(context.rank());  // Another batch on each rank.
  const torch::Tensor x = (torch::rand({8, 3}) + context.rank()).requires_grad_();
  const torch::Tensor result = normalised(x, group);
  result.square().mean().backward();  // Always near 1: it hardly depends on x.
  const torch::Tensor mean = retinue::functional::all_reduce(result.detach().mean(), group);
  if (context.rank() == 0)
    fmt::print("mean of all batches {:.2f}, gradient {}\n", std::abs(mean.item<float>()),
               x.grad().abs().max().item<float>() < 1e-3f ? "near 0" : "too large");
}

int main(int argc, char** argv) {
  retinue::Runtime runtime(argc, argv);
  retinue::spawn<train>({.nprocs = 2});
  retinue::spawn<normalise>({.nprocs = 2});
}
