#pragma once

#include <torch/nn/module.h>

#include <memory>

#include "torch_contenders.h"

namespace retinue::bench {

/// A network with one input and one output.
struct Net : torch::nn::Module {
  virtual at::Tensor forward(at::Tensor input) = 0;
};

/// A batch of 32, which differs from rank to rank.
struct Batch {
  at::Tensor data;
  at::Tensor target;
};

/// Errors: std::logic_error if it has another number of parameters than the case says.
std::shared_ptr<Net> make_net(const NetCase& net);
Batch make_batch(const NetCase& net, int rank);

}  // namespace retinue::bench
