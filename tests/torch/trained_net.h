#pragma once

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "retinue/torch/process_group.h"
#include "support/ranks.h"

namespace retinue::test {

constexpr std::int64_t kBatch = 4;  ///< Of one rank.

inline torch::nn::Sequential make_mlp(std::int64_t hidden = 16) {
  namespace nn = torch::nn;
  return nn::Sequential(nn::Linear(6, hidden), nn::Tanh(), nn::Linear(hidden, hidden), nn::Tanh(),
                        nn::Linear(hidden, 3));
}

/// Makes a module with given initial values, the same in every process.
template <typename Make>
auto seeded(std::uint64_t seed, Make make) {
  torch::manual_seed(seed);
  return make();
}

/// The joined batch of all ranks in step `step`, the same in every process.
inline std::pair<at::Tensor, at::Tensor> joined_batch(int step, int ranks, at::IntArrayRef shape) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(77u + static_cast<unsigned>(step));
  std::vector<std::int64_t> sizes{kBatch * ranks};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return {torch::randn(sizes, generator), torch::randint(0, 3, {kBatch * ranks}, generator, torch::kLong)};
}

/// A rank's part of a step's batch.
inline at::Tensor part_of(int step, const ProcessGroup& group, int rank) {
  return joined_batch(step, group->getSize(), {6}).first.narrow(0, kBatch * rank, kBatch);
}

/// Calls `body` on ranks that train with one thread each.
inline void run_training(int ranks, const char* backend, const std::function<void(const ProcessGroup&)>& body) {
  run_ranks(ranks, [&](const JobGroup& members) {
    at::set_num_threads(1);
    body(init_process_group(members, {.backend = backend}));
  });
}

/// Numbers of the normal distribution, the same in every process.
inline at::Tensor random_numbers(unsigned seed, at::IntArrayRef sizes) {
  return torch::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed), torch::kFloat64);
}

/// Tests of each backend with 1, 2 and 3 ranks.
class OnRanks : public testing::TestWithParam<std::tuple<const char*, int>> {
 public:
  static auto values() { return testing::Combine(testing::Values("shm", "gloo"), testing::Values(1, 2, 3)); }
  static std::string name_of(const testing::TestParamInfo<ParamType>& info) {
    return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
  }

 protected:
  static void on_ranks(const std::function<void(const ProcessGroup&)>& body) {
    run_training(std::get<1>(GetParam()), std::get<0>(GetParam()), body);
  }
};

}  // namespace retinue::test
