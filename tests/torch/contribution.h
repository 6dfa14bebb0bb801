#pragma once

#include <torch/torch.h>

namespace retinue::test {

/// What `rank` contributes; every rank can compute every other's.
inline at::Tensor contribution(int rank, at::IntArrayRef sizes, at::ScalarType type) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1000u + static_cast<unsigned>(rank));
  return torch::randint(-3, 9, sizes, generator, torch::kFloat64).div_(2).to(type);
}

}  // namespace retinue::test
