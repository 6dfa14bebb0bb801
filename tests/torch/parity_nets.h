#pragma once

#include <torch/torch.h>

#include <functional>
#include <optional>
#include <tuple>

#include "retinue/torch/distributed_data_parallel.h"

/// The networks of data_parallel_parity.py.
namespace retinue::test::parity {

namespace nn = torch::nn;
using at::Tensor;

struct ConvImpl : nn::Module {
  Tensor forward(const Tensor& x) { return last(torch::max_pool2d(torch::relu(norm(conv(x))), 2).flatten(1)); }
  nn::Conv2d conv{register_module("conv", nn::Conv2d(nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)))};
  nn::BatchNorm2d norm{register_module("norm", nn::BatchNorm2d(4))};
  nn::Linear last{register_module("last", nn::Linear(36, 5))};
};
TORCH_MODULE(Conv);

/// Computes tanh of a layer without a graph, and once more, with one, in backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, nn::Linear& layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(&layer);
    const torch::NoGradGuard no_grad;
    return torch::tanh(layer(x));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    nn::Linear& layer = *reinterpret_cast<nn::Linear*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode enabled(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    torch::autograd::backward({torch::tanh(layer(x))}, {gradients[0]});
    return {x.grad(), {}};
  }
};

struct MlpImpl : nn::Module {
  explicit MlpImpl(int heads = 1, bool recomputes = false) : recomputes_(recomputes) {
    if (heads == 2) head1 = register_module("head1", nn::Linear(8, 5));
  }
  Tensor forward(const Tensor& input, std::int64_t head = 0) {
    Tensor x = torch::tanh(first(input.flatten(1)));
    if (inner) {
      x = torch::tanh((*inner)(x));
    } else {
      x = recomputes_ ? Recomputed::apply(x, second) : torch::tanh(second(x));
    }
    return head == 0 ? head0(x) : head1(x);
  }
  nn::Linear first{register_module("first", nn::Linear(36, 8))};
  nn::Linear second{register_module("second", nn::Linear(8, 8))};
  nn::Linear head0{register_module("head0", nn::Linear(8, 5))};
  nn::Linear head1{nullptr};
  /// Takes the place of `second`, where there is one.
  std::optional<DistributedDataParallel<nn::Linear>> inner;

 private:
  bool recomputes_;
};
TORCH_MODULE(Mlp);

struct TiedImpl : nn::Module {
  TiedImpl() { register_module("last", last); }
  Tensor forward(const Tensor& input) {
    const Tensor x = torch::tanh(first(input.flatten(1)));
    return last(torch::tanh(again(torch::tanh(second(x)))));
  }
  nn::Linear first{register_module("first", nn::Linear(36, 8))};
  nn::Linear second{register_module("second", nn::Linear(8, 8))};
  nn::Linear again{register_module("again", second)};
  nn::Linear last{8, 5};
};
TORCH_MODULE(Tied);

struct WordsImpl : nn::Module {
  Tensor forward(const Tensor& x) {
    const Tensor numbers = (x.flatten(1).slice(1, 0, 5).abs() * 7).to(torch::kLong).remainder(20);
    return last(words(numbers).mean(1));
  }
  nn::Embedding words{register_module("words", nn::Embedding(nn::EmbeddingOptions(20, 8).sparse(true)))};
  nn::Linear last{register_module("last", nn::Linear(8, 5))};
};
TORCH_MODULE(Words);

struct OutputsImpl : nn::Module {
  std::tuple<Tensor, Tensor> forward(const Tensor& one, const Tensor& two) {
    const Tensor x = torch::tanh(first(one.flatten(1)));
    const Tensor y = torch::tanh(second(two.flatten(1)));
    return {last0(x), last1(x + y)};
  }
  nn::Linear first{register_module("first", nn::Linear(36, 8))};
  nn::Linear second{register_module("second", nn::Linear(36, 8))};
  nn::Linear last0{register_module("last0", nn::Linear(8, 5))};
  nn::Linear last1{register_module("last1", nn::Linear(8, 5))};
};
TORCH_MODULE(Outputs);

}  // namespace retinue::test::parity
