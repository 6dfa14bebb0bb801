#include "torch/training_nets.h"

#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/transformercoder.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>
#include <string_view>
#include <vector>

namespace retinue::bench {
namespace {

namespace nn = torch::nn;

constexpr std::int64_t kBatch = 32;

struct Mlp final : Net {
  explicit Mlp(const std::vector<int>& widths) {
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      if (i > 0) layers->push_back(nn::ReLU());
      layers->push_back(nn::Linear(widths[i], widths[i + 1]));
    }
    register_module("layers", layers);
  }
  at::Tensor forward(at::Tensor input) override { return layers->forward(input); }
  nn::Sequential layers;
};

nn::Conv2dOptions convolution(int inputs, int outputs, int size, int stride) {
  return nn::Conv2dOptions(inputs, outputs, size).stride(stride).padding(size / 2).bias(false);
}

struct BlockImpl : nn::Module {
  BlockImpl(int inputs, int outputs, int stride)
      : first(register_module("first", nn::Conv2d(convolution(inputs, outputs, 3, stride)))),
        second(register_module("second", nn::Conv2d(convolution(outputs, outputs, 3, 1)))),
        first_norm(register_module("first_norm", nn::BatchNorm2d(outputs))),
        second_norm(register_module("second_norm", nn::BatchNorm2d(outputs))) {
    if (inputs != outputs) shortcut = register_module("shortcut", nn::Conv2d(convolution(inputs, outputs, 1, stride)));
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor output = second_norm(second(torch::relu(first_norm(first(input)))));
    return torch::relu(output + (shortcut.is_empty() ? input : shortcut(input)));
  }
  nn::Conv2d first, second, shortcut{nullptr};
  nn::BatchNorm2d first_norm, second_norm;
};
TORCH_MODULE(Block);

struct ResNet final : Net {
  ResNet() {
    layers->push_back(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
    int width = 16;
    for (const int outputs : {16, 32, 64})
      for (int i = 0; i < 3; ++i) {
        layers->push_back(Block(width, outputs, width == outputs ? 1 : 2));
        width = outputs;
      }
    register_module("layers", layers);
    last = register_module("last", nn::Linear(64, 10));
  }
  at::Tensor forward(at::Tensor input) override {
    return last(layers->forward(input.view({-1, 1, 28, 28})).mean({2, 3}));
  }
  nn::Sequential layers;
  nn::Linear last{nullptr};
};

struct Transformer final : Net {
  Transformer() {
    const auto layer = nn::TransformerEncoderLayerOptions(384, 6).dim_feedforward(1536).dropout(0);
    first = register_module("first", nn::Linear(64, 384));
    encoder = register_module(
        "encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(nn::TransformerEncoderLayer(layer), 5)));
    last = register_module("last", nn::Linear(384, 10));
  }
  /// 16 positions with 64 numbers each.
  at::Tensor forward(at::Tensor input) override { return last(encoder(first(input.view({16, -1, 64}))).mean(0)); }
  nn::Linear first{nullptr}, last{nullptr};
  nn::TransformerEncoder encoder{nullptr};
};

}  // namespace

std::shared_ptr<Net> make_net(const NetCase& net) {
  const std::string_view name = net.name;
  std::shared_ptr<Net> made;
  if (name == "small") made = std::make_shared<Mlp>(std::vector{784, 1024, 1024, 10});
  if (name == "large") made = std::make_shared<Mlp>(std::vector{1024, 4096, 3072, 1024, 10});
  if (name == "transformer") made = std::make_shared<Transformer>();
  if (name == "resnet") made = std::make_shared<ResNet>();
  std::size_t parameters = 0;
  for (const at::Tensor& parameter : made->parameters()) parameters += static_cast<std::size_t>(parameter.numel());
  if (parameters != net.parameters)
    throw std::logic_error(std::string(name) + " has " + std::to_string(parameters) + " parameters");
  return made;
}

Batch make_batch(const NetCase& net, int rank) {
  const std::string_view name = net.name;
  torch::manual_seed(1000 + rank);
  const std::int64_t features = name == "small" || name == "resnet" ? 784 : 1024;
  return {torch::randn({kBatch, features}), torch::randint(0, 10, {kBatch}, torch::kInt64)};
}

}  // namespace retinue::bench
