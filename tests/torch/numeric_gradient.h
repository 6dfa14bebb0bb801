#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "retinue/torch/process_group.h"

namespace retinue::test {

/// The sum of a number over all ranks.
inline double sum_over_ranks(double mine, const ProcessGroup& group) {
  const at::Tensor sum = torch::tensor({mine}, torch::kFloat64);
  all_reduce(sum, group);
  return sum.item<double>();
}

/// The gradient of the sum of all ranks' losses for this rank's `input`, by differences. All ranks call it, and their
/// inputs may differ in size.
inline at::Tensor numeric_gradient(const std::function<at::Tensor()>& loss, const at::Tensor& input,
                                   const ProcessGroup& group) {
  const torch::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  const at::Tensor gradient = torch::zeros_like(input);
  for (int rank = 0; rank < group->getSize(); ++rank) {
    const at::Tensor count = torch::tensor({input.numel()});
    broadcast(count, group, {.src = rank});
    for (std::int64_t i = 0; i < count.item<std::int64_t>(); ++i) {
      const bool is_mine = rank == group->getRank();
      const auto loss_at = [&](double step) {
        if (is_mine) input.view(-1)[i] += step;
        const double sum = sum_over_ranks(loss().item<double>(), group);
        if (is_mine) input.view(-1)[i] -= step;
        return sum;
      };
      const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
      if (is_mine) gradient.view(-1)[i] = slope;
    }
  }
  return gradient;
}

}  // namespace retinue::test
