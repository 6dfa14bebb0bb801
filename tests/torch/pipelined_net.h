#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "retinue/torch/pipeline_parallel.h"
#include "torch/trained_net.h"

namespace retinue::test {

/// Shapes change from stage to stage; the input is of whole numbers.
inline torch::nn::Sequential make_model() {
  return seeded(11, [] {
    return torch::nn::Sequential(torch::nn::Embedding(7, 4), torch::nn::Flatten(), torch::nn::Linear(12, 10),
                                 torch::nn::Tanh(), torch::nn::Linear(10, 6), torch::nn::Tanh(),
                                 torch::nn::Linear(6, 3));
  });
}

inline at::Tensor mean_loss(const at::Tensor& output, const at::Tensor& target) {
  return torch::cross_entropy_loss(output, target);
}

inline at::Tensor squared_loss(const at::Tensor& output, const at::Tensor& target) {
  return torch::mse_loss(output, target);
}

struct Batch {
  at::Tensor input;
  at::Tensor target;
};
/// The same in all processes.
inline Batch make_batch(int step, std::int64_t rows) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(60u + static_cast<unsigned>(step));
  return {torch::randint(0, 7, {rows, 3}, generator, torch::kLong),
          torch::randint(0, 3, {rows}, generator, torch::kLong)};
}

inline torch::nn::Sequential own_part(const torch::nn::Sequential& model, const ProcessGroup& group) {
  return split_by_parameters(model, group->getSize())[static_cast<std::size_t>(group->getRank())];
}

/// A part has the same gradients as the whole model.
inline void expect_same_gradients(const torch::nn::Sequential& part, const torch::nn::Sequential& whole,
                                  const std::string& what) {
  const auto expected = whole->named_parameters();
  for (const auto& item : part->named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    EXPECT_TRUE(gradient.defined() && torch::allclose(gradient, expected[item.key()].grad(), 1e-4, 1e-6))
        << item.key() << ", " << what;
  }
}

}  // namespace retinue::test
