#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "retinue/collective/communicator.h"
#include "retinue/torch/distributed_data_parallel.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

constexpr std::int64_t kBatch = 32;
constexpr double kLearningRate = 1e-3;

torch::nn::Sequential make_net(const Mlp& mlp) {
  torch::nn::Sequential net;
  for (std::size_t i = 0; i + 1 < mlp.widths.size() && mlp.widths[i + 1] != 0; ++i) {
    if (i > 0) net->push_back(torch::nn::ReLU());
    net->push_back(torch::nn::Linear(mlp.widths[i], mlp.widths[i + 1]));
  }
  return net;
}

struct Batch {
  at::Tensor data;
  at::Tensor target;
};

/// A batch that differs from rank to rank.
Batch make_batch(const Mlp& mlp, int rank) {
  torch::manual_seed(1000 + rank);
  return {torch::randn({kBatch, mlp.widths[0]}), torch::randint(0, 10, {kBatch}, torch::kInt64)};
}

/// Checks one more backward pass of `model` against gradients computed without DDP and averaged by the core.
template <class Model>
void check_gradients(Model& model, torch::nn::Sequential& net, const Mlp& mlp, const Batch& batch,
                     Communicator& group) {
  torch::nn::Sequential reference = make_net(mlp);
  const std::vector<at::Tensor> params = net->parameters();
  const std::vector<at::Tensor> reference_params = reference->parameters();
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < params.size(); ++i) reference_params[i].copy_(params[i]);
  }
  net->zero_grad();
  torch::nn::functional::cross_entropy(model.forward(batch.data), batch.target).backward();
  torch::nn::functional::cross_entropy(reference->forward(batch.data), batch.target).backward();
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor mean = reference_params[i].grad().contiguous();
    group.all_reduce(std::span(mean.data_ptr<float>(), static_cast<std::size_t>(mean.numel())), ReduceOp::kAvg);
    if (!torch::allclose(params[i].grad(), mean, 1e-4, 1e-6))
      throw std::runtime_error("ddp: a gradient is not the mean of the ranks' gradients");
  }
}

/// Parameters have the same bits on all ranks if each one's bits are the least and the greatest over the ranks.
void check_equal_params(const torch::nn::Sequential& net, Communicator& group) {
  for (const at::Tensor& parameter : net->parameters()) {
    const at::Tensor bits = parameter.detach().contiguous().view(torch::kInt32);
    const auto count = static_cast<std::size_t>(bits.numel());
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const at::Tensor extreme = bits.clone();
      group.all_reduce(std::span(extreme.data_ptr<std::int32_t>(), count), op);
      if (!extreme.equal(bits)) throw std::runtime_error("ddp: the ranks' parameters differ");
    }
  }
}

template <class Forward>
void measure_steps(const DdpRound& round, const RankContext& context, const torch::nn::Sequential& net,
                   const Batch& batch, Forward&& forward) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(kLearningRate));
  at::Tensor loss;
  measure_iterations(
      round, context, [](int) {},
      [&] {
        optimizer.zero_grad();
        loss = torch::nn::functional::cross_entropy(forward(batch.data), batch.target);
        loss.backward();
        optimizer.step();
      },
      [&](int) {
        if (!std::isfinite(loss.item<double>())) throw std::runtime_error("ddp: the loss is not finite");
      });
}

void training_rank(RankContext& context, const DdpRound& round) {
  torch::set_num_threads(1);
  const Mlp& mlp = kMlps[round.mlp];
  torch::manual_seed(0);
  torch::nn::Sequential net = make_net(mlp);
  const Batch batch = make_batch(mlp, context.rank());
  Communicator checks(context.world());
  if (round.mode == DdpRound::Mode::kLocal) {
    checks.barrier();
    measure_steps(round, context, net, batch, [&](const at::Tensor& data) { return net->forward(data); });
    checks.barrier();
    return;
  }
  const ProcessGroup group = init_process_group(context);
  DistributedDataParallel<torch::nn::Sequential> model(net, group);
  const auto forward = [&](const at::Tensor& data) { return model.forward(data); };
  measure_steps(round, context, net, batch, forward);
  check_equal_params(net, checks);
  check_gradients(model, net, mlp, batch, checks);
}

}  // namespace

Spans ddp_spans(int ranks, const DdpRound& round) {
  return measure_round<training_rank>(ranks, round);
}

}  // namespace retinue::bench
