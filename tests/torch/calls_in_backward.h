#pragma once

#include <torch/torch.h>

#include <functional>

namespace retinue::test {

/// Calls a function in its backward, as a checkpoint does that recomputes a part of the forward.
struct CallsInBackward : torch::autograd::Function<CallsInBackward> {
  static inline std::function<void()> call;

  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    const torch::AutoGradMode enabled(true);
    call();
    return gradients;
  }
};

}  // namespace retinue::test
