#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "launch/log_files.h"
#include "retinue/base/error.h"
#include "retinue/torch/checkpoint.h"
#include "retinue/torch/process_group.h"
#include "support/ranks.h"

namespace retinue::test {

/// A module with parameters of several types, shapes and layouts, with buffers, and with a tensor of two names.
struct MixedNetImpl : torch::nn::Module {
  MixedNetImpl()
      : body(register_module("body", torch::nn::Linear(33, 77))),
        norm(register_module("norm", torch::nn::BatchNorm1d(77))),
        head(register_module("head", torch::nn::Linear(77, 33))),
        tied(register_parameter("tied", head->weight)),
        half(register_parameter("half", torch::randn({5, 3}).to(torch::kBFloat16))),
        transposed(register_parameter("transposed", torch::randn({40, 30}).t())),
        none(register_parameter("none", torch::zeros({0, 4}))) {
    register_buffer("count", torch::tensor({7, 8}, torch::kLong));
  }

  at::Tensor forward(const at::Tensor& input) {
    return head(torch::tanh(norm(body(input)))).sum() + (half * half).sum().to(torch::kFloat) +
           (transposed * transposed).sum() + none.sum();
  }

  torch::nn::Linear body;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear head;
  at::Tensor tied, half, transposed, none;
};
TORCH_MODULE(MixedNet);

inline std::vector<at::Tensor> unique_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> unique;
  for (const at::Tensor& parameter : module.parameters())
    if (std::none_of(unique.begin(), unique.end(), [&](const at::Tensor& one) { return one.is_same(parameter); }))
      unique.push_back(parameter);
  return unique;
}

using MakeOptimizer = std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)>;

template <class Optimizer, class Options>
MakeOptimizer maker_of(Options options) {
  return [options](std::vector<at::Tensor> parameters) {
    return std::make_unique<Optimizer>(std::move(parameters), options);
  };
}

/// A net and its optimizer, with the same bits in every process.
struct Trained {
  Trained(std::uint64_t seed, const MakeOptimizer& make_optimizer, int steps) : net(nullptr) {
    at::set_num_threads(1);
    torch::manual_seed(seed);
    net = MixedNet();
    optimizer = make_optimizer(unique_parameters(*net));
    for (int step = 0; step < steps; ++step) train();
  }

  void train() {
    optimizer->zero_grad();
    net->forward(torch::randn({8, 33})).backward();
    optimizer->step();
  }
  CheckpointState state() { return {.model = net, .optimizer = *optimizer}; }

  MixedNet net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

inline std::unique_ptr<torch::optim::Optimizer> make_adamw(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::AdamW>(std::move(parameters),
                                               torch::optim::AdamWOptions(0.01).amsgrad(true).betas({0.8, 0.95}));
}
inline std::unique_ptr<torch::optim::Optimizer> make_sgd(std::vector<at::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.01).momentum(0.9).nesterov(true));
}

/// Bit for bit, NaNs included.
inline bool has_same_bits(const at::Tensor& one, const at::Tensor& other) {
  if (one.sizes() != other.sizes() || one.scalar_type() != other.scalar_type()) return false;
  const at::Tensor a = one.detach().contiguous();
  const at::Tensor b = other.detach().contiguous();
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

inline void expect_same_module(const torch::nn::Module& one, const torch::nn::Module& other) {
  const auto compare = [](const auto& left, const auto& right) {
    ASSERT_EQ(left.keys(), right.keys());
    for (const auto& item : left) EXPECT_TRUE(has_same_bits(item.value(), right[item.key()])) << item.key();
  };
  compare(one.named_parameters(), other.named_parameters());
  compare(one.named_buffers(), other.named_buffers());
}

/// Compares what can be seen without a step.
inline void expect_same_optimizer(const torch::optim::Optimizer& one, const torch::optim::Optimizer& other) {
  ASSERT_EQ(one.state().size(), other.state().size());
  ASSERT_EQ(one.param_groups().size(), other.param_groups().size());
  for (std::size_t i = 0; i < one.param_groups().size(); ++i)
    EXPECT_EQ(one.param_groups()[i].options().get_lr(), other.param_groups()[i].options().get_lr());
}

/// Makes further steps with the same data, and compares: in each step all state counts.
inline void expect_same_future(Trained& one, Trained& other) {
  expect_same_module(*one.net, *other.net);
  expect_same_optimizer(*one.optimizer, *other.optimizer);
  for (Trained* each : {&one, &other}) {
    torch::manual_seed(99);
    for (int step = 0; step < 3; ++step) each->train();
  }
  expect_same_module(*one.net, *other.net);
}

inline ProcessGroup group_of(const JobGroup& members, const char* backend = "shm") {
  at::set_num_threads(1);
  return init_process_group(members, {.backend = backend});
}

/// The address space that this process uses, for RLIMIT_AS.
inline std::size_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// The text of the error that `call` throws.
template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace retinue::test
