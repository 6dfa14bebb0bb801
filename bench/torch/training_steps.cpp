#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cmath>

#include "retinue/collective/communicator.h"
#include "retinue/torch/sharded_optimizer.h"
#include "torch/training_nets.h"
#include "torch_contenders.h"

namespace retinue::bench {
namespace {

using Mode = TrainingRound::Mode;
using Algorithm = TrainingRound::Algorithm;
using Model = DistributedDataParallel<std::shared_ptr<Net>>;

constexpr double kLearningRate = 1e-3;

/// LibTorch's fused kernels, over all parameters.
class FusedOptimizer final : public torch::optim::Optimizer {
 public:
  FusedOptimizer(std::vector<at::Tensor> parameters, Algorithm algorithm)
      : Optimizer(parameters, std::make_unique<torch::optim::AdamWOptions>(kLearningRate)),
        parameters_(std::move(parameters)),
        algorithm_(algorithm) {
    for (const at::Tensor& parameter : parameters_) {
      means_.push_back(torch::zeros_like(parameter));
      squares_.push_back(torch::zeros_like(parameter));
      steps_.push_back(torch::zeros({}));
    }
  }

  at::Tensor step(LossClosure) override {
    const torch::NoGradGuard no_grad;
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) gradients.push_back(parameter.grad());
    if (algorithm_ == Algorithm::kSgd) {
      at::_fused_sgd_(parameters_, gradients, {}, /*weight_decay=*/0, /*momentum=*/0, kLearningRate, /*dampening=*/0,
                      /*nesterov=*/false, /*maximize=*/false, /*is_first_step=*/false);
      return {};
    }
    for (at::Tensor& step : steps_) step.add_(1);
    at::_fused_adamw_(parameters_, gradients, means_, squares_, {}, steps_, kLearningRate, 0.9, 0.999,
                      /*weight_decay=*/1e-2, /*eps=*/1e-8, /*amsgrad=*/false, /*maximize=*/false);
    return {};
  }

 private:
  std::vector<at::Tensor> parameters_, means_, squares_, steps_;
  Algorithm algorithm_;
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const TrainingRound& round, Net& net, Model* model) {
  const bool is_sgd = round.algorithm == Algorithm::kSgd;
  const torch::optim::SGDOptions sgd(kLearningRate);
  const torch::optim::AdamWOptions adamw(kLearningRate);
  const Mode mode = round.mode;
  if (mode == Mode::kLocalFused || mode == Mode::kDdpFused)
    return std::make_unique<FusedOptimizer>(net.parameters(), round.algorithm);
  if (mode == Mode::kSharded || mode == Mode::kShared) {
    if (is_sgd) return std::make_unique<ShardedOptimizer<torch::optim::SGD>>(*model, sgd);
    return std::make_unique<ShardedOptimizer<torch::optim::AdamW>>(*model, adamw);
  }
  if (is_sgd) return std::make_unique<torch::optim::SGD>(net.parameters(), sgd);
  return std::make_unique<torch::optim::AdamW>(net.parameters(), adamw);
}

/// Checks one more backward of `model` against gradients computed without DDP and averaged by the core.
void check_gradients(Model& model, Net& net, const TrainingRound& round, const Batch& batch, Communicator& group) {
  const std::shared_ptr<Net> reference = make_net(kNets[round.net]);
  const std::vector<at::Tensor> params = net.parameters();
  const std::vector<at::Tensor> reference_params = reference->parameters();
  {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < params.size(); ++i) reference_params[i].copy_(params[i]);
  }
  net.zero_grad();
  torch::nn::functional::cross_entropy(model.forward(batch.data), batch.target).backward();
  torch::nn::functional::cross_entropy(reference->forward(batch.data), batch.target).backward();
  for (std::size_t i = 0; i < params.size(); ++i) {
    const at::Tensor mean = reference_params[i].grad().contiguous();
    group.all_reduce(std::span(mean.data_ptr<float>(), static_cast<std::size_t>(mean.numel())), ReduceOp::kAvg);
    if (!torch::allclose(params[i].grad(), mean, 1e-3, 1e-5))
      throw std::runtime_error("training: a gradient is not the mean of the ranks' gradients");
  }
}

/// Parameters have the same bits on all ranks if each one's bits are the least and the greatest over the ranks.
void check_equal_params(const Net& net, Communicator& group) {
  for (const at::Tensor& parameter : net.parameters()) {
    const at::Tensor bits = parameter.detach().contiguous().view(torch::kInt32);
    const auto count = static_cast<std::size_t>(bits.numel());
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
      const at::Tensor extreme = bits.clone();
      group.all_reduce(std::span(extreme.data_ptr<std::int32_t>(), count), op);
      if (!extreme.equal(bits)) throw std::runtime_error("training: the ranks' parameters differ");
    }
  }
}

template <class Forward, class Average>
void measure_steps(const TrainingRound& round, const RankContext& context, torch::optim::Optimizer& optimizer,
                   const Batch& batch, Forward&& forward, Average&& average) {
  at::Tensor loss;
  measure_iterations(
      round, context, [](int) {},
      [&] {
        optimizer.zero_grad();
        loss = torch::nn::functional::cross_entropy(forward(batch.data), batch.target);
        loss.backward();
        average();
        optimizer.step();
      },
      [&](int) {
        if (!std::isfinite(loss.item<double>())) throw std::runtime_error("training: the loss is not finite");
      });
}

/// Numbers of this rank, in job memory.
class SharedValues {
 public:
  SharedValues(const RankContext& context, std::size_t bytes)
      : block_(SharedBlock::allocate(context.memory(), bytes)),
        values_(reinterpret_cast<float*>(block_.data()), bytes / sizeof(float)) {
    std::fill(values_.begin(), values_.end(), 1.0F);
  }
  std::span<float> get() const { return values_; }

 private:
  SharedBlock block_;
  std::span<float> values_;
};

void training_rank(RankContext& context, const TrainingRound& round) {
  torch::set_num_threads(1);
  const NetCase& which = kNets[round.net];
  torch::manual_seed(0);
  const std::shared_ptr<Net> net = make_net(which);
  const Batch batch = make_batch(which, context.rank());
  Communicator checks(context.world());
  const auto plain = [&](const at::Tensor& data) { return net->forward(data); };
  if (round.mode == Mode::kLocal || round.mode == Mode::kLocalFused) {
    const auto optimizer = make_optimizer(round, *net, nullptr);
    checks.barrier();
    measure_steps(round, context, *optimizer, batch, plain, [] {});
    checks.barrier();
    return;
  }
  if (round.mode == Mode::kLocalReduce) {
    const auto optimizer = make_optimizer(round, *net, nullptr);
    const SharedValues values(context, which.bytes());
    measure_steps(round, context, *optimizer, batch, plain, [&] { checks.all_reduce(values.get(), ReduceOp::kAvg); });
    return;
  }
  const ProcessGroup group = init_process_group(context);
  Model model(net, group, {.share_parameters = round.mode == Mode::kShared});
  const auto optimizer = make_optimizer(round, *net, &model);
  measure_steps(
      round, context, *optimizer, batch, [&](const at::Tensor& data) { return model.forward(data); }, [] {});
  check_equal_params(*net, checks);
  if (round.mode != Mode::kShared) check_gradients(model, *net, round, batch, checks);
}

void averaging_rank(RankContext& context, const Round& round) {
  torch::set_num_threads(1);
  Communicator group(context.world());
  const SharedValues values(context, round.bytes);
  measure_iterations(
      round, context, [&](int) { group.barrier(); }, [&] { group.all_reduce(values.get(), ReduceOp::kAvg); },
      [](int) {});
}

}  // namespace

Samples training_steps(int ranks, const TrainingRound& round) {
  std::vector<Usage> usage;
  const Spans spans = measure_round<training_rank>(ranks, round, &usage);
  return with_usage(mean_times(spans), usage, round.iterations);
}

Contender bare_average(int ranks, std::size_t bytes) {
  Round round;
  round.warmups = 5;
  round.iterations = 20;
  round.bytes = bytes;
  return {"", [=] { return Samples(mean_times(measure_round<averaging_rank>(ranks, round))); }};
}

}  // namespace retinue::bench
