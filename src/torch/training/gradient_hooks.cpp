#include "retinue/torch/gradient_hooks.h"

#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "retinue/base/error.h"
#include "torch/libtorch_versions.h"
#include "torch/training/gradient_buckets.h"

namespace retinue {
namespace {

std::function<void()> wait_for(c10::intrusive_ptr<c10d::Work> work) {
  return [work = std::move(work)] {
    if (work) work->wait();
  };
}

std::function<void()> start_compressed(const GradBucket& bucket, const ProcessGroup& group, at::ScalarType type) {
  if (bucket.gradients.empty()) return [] {};
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> compressed;
  for (const at::Tensor& gradient : bucket.gradients) compressed.push_back((gradient / group->getSize()).to(type));
  auto work = reduce_in_backward(group, compressed, c10d::ReduceOp::SUM, /*async_op=*/true);
  return [work = std::move(work), compressed, gradients = bucket.gradients] {
    const c10::NoGradGuard no_grad_later;
    if (work) work->wait();
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i].copy_(compressed[i]);
  };
}

/// Makes the columns orthonormal, one after the other.
void orthogonalize(const at::Tensor& matrix, double epsilon) {
  for (std::int64_t i = 0; i < matrix.size(1); ++i) {
    const at::Tensor column = matrix.select(1, i);
    column.div_(at::linalg_vector_norm(column).add_(epsilon));
    if (i + 1 == matrix.size(1)) break;
    const at::Tensor rest = matrix.narrow(1, i + 1, matrix.size(1) - i - 1);
    rest.sub_(at::matmul(column.unsqueeze(1), at::matmul(column.unsqueeze(0), rest)));
  }
}

}  // namespace

std::function<void()> Fp16Compress::start(const GradBucket& bucket, const ProcessGroup& group) {
  return start_compressed(bucket, group, at::kHalf);
}

std::function<void()> Bf16Compress::start(const GradBucket& bucket, const ProcessGroup& group) {
  return start_compressed(bucket, group, at::kBFloat16);
}

struct PowerSgd::State {
  /// Of one parameter.
  struct Memory {
    at::Tensor error;
    at::Tensor q;
  };
  /// A gradient on its way: `matrix` is about `p` times the transpose of `q`.
  struct Factors {
    at::Tensor gradient;
    at::Tensor matrix;
    Memory* memory;
    at::Tensor p = {};
    at::Tensor q = {};
  };

  bool is_compressed(const at::Tensor& gradient) const {
    if (iteration < options.start_powerSGD_iter || gradient.dim() < 2 || !gradient.is_contiguous()) return false;
    const auto rows = static_cast<double>(gradient.size(0));
    const double columns = static_cast<double>(gradient.numel()) / std::max(rows, 1.0);
    const double rank = std::min({rows, columns, static_cast<double>(options.matrix_approximation_rank)});
    return rank > 0 && (rows + columns) * rank * options.min_compression_rate < rows * columns;
  }

  Factors begin(const at::Tensor& gradient, const at::Tensor& parameter) {
    Memory& memory = memories[parameter.unsafeGetTensorImpl()];
    if (options.use_error_feedback) {
      if (!memory.error.defined()) memory.error = at::zeros_like(gradient);
      gradient.add_(memory.error);
      memory.error.copy_(gradient);
    }
    Factors factors{.gradient = gradient, .matrix = gradient.view({gradient.size(0), -1}), .memory = &memory};
    const std::int64_t columns = factors.matrix.size(1);
    const std::int64_t rank = std::min({factors.matrix.size(0), columns, options.matrix_approximation_rank});
    if (!memory.q.defined() || !options.warm_start) {
      // The same on all ranks.
      const at::Tensor drawn = at::randn({columns, rank}, generator, at::TensorOptions(gradient.scalar_type()));
      memory.q = drawn.to(gradient.device());
    }
    orthogonalize(memory.q, options.orthogonalization_epsilon);
    factors.p = at::matmul(factors.matrix, memory.q);
    return factors;
  }

  PowerSgdOptions options;
  at::Generator generator;
  std::int64_t iteration = 0;  ///< Of backwards.
  std::unordered_map<const c10::TensorImpl*, Memory> memories = {};
};

PowerSgd::PowerSgd(PowerSgdOptions options) : state_(std::make_unique<State>()) {
  if (options.matrix_approximation_rank < 1) throw UsageError("PowerSgd: matrix_approximation_rank must be at least 1");
  if (!(options.min_compression_rate > 0)) throw UsageError("PowerSgd: min_compression_rate must be above 0");
  if (!(options.orthogonalization_epsilon >= 0))
    throw UsageError("PowerSgd: orthogonalization_epsilon must not be negative");
  if ((options.use_error_feedback || options.warm_start) && options.start_powerSGD_iter < 2)
    throw UsageError(
        "PowerSgd: start_powerSGD_iter must be at least 2 with use_error_feedback or warm_start, as in PyTorch: what "
        "they remember depends on how parameters are put into buckets");
  state_->options = options;
  state_->generator = at::make_generator<at::CPUGeneratorImpl>(options.random_seed);
}

PowerSgd::~PowerSgd() = default;

std::function<void()> PowerSgd::start(const GradBucket& bucket, const ProcessGroup& group) {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> exact, sums;
  std::vector<State::Factors> all;
  for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
    if (!state_->is_compressed(bucket.gradients[i])) {
      exact.push_back(bucket.gradients[i]);
      continue;
    }
    all.push_back(state_->begin(bucket.gradients[i], bucket.parameters[i]));
    sums.push_back(all.back().p);
  }
  if (bucket.is_last) ++state_->iteration;
  auto averaging = exact.empty() ? nullptr : reduce_in_backward(group, exact, c10d::ReduceOp::AVG, /*async_op=*/true);
  if (all.empty()) return wait_for(std::move(averaging));
  reduce_in_backward(group, sums, c10d::ReduceOp::SUM, /*async_op=*/false);
  std::vector<at::Tensor> averages;
  for (State::Factors& factors : all) {
    orthogonalize(factors.p, state_->options.orthogonalization_epsilon);
    factors.q = at::matmul(factors.matrix.t(), factors.p);
    averages.push_back(factors.q);
  }
  auto work = reduce_in_backward(group, averages, c10d::ReduceOp::AVG, /*async_op=*/true);
  return [this, averaging, work, all = std::move(all)] {
    const c10::NoGradGuard no_grad_later;
    if (averaging) averaging->wait();
    if (work) work->wait();
    for (const State::Factors& factors : all) {
      factors.matrix.copy_(at::matmul(factors.p, factors.q.t()));
      factors.memory->q = factors.q;
      if (state_->options.use_error_feedback) factors.memory->error.sub_(factors.gradient);
    }
  };
}

}  // namespace retinue
