#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "retinue/torch/data_loader.h"

namespace retinue::test {

/// Items that say which they are, with random numbers of their own.
struct CountedItems : torch::data::datasets::Dataset<CountedItems> {
  explicit CountedItems(std::size_t count) : count(count) {}

  torch::data::Example<> get(std::size_t index) override {
    return {torch::arange(3) + static_cast<std::int64_t>(10 * index), torch::tensor(static_cast<std::int64_t>(index))};
  }
  torch::data::Example<> get(std::size_t index, ItemGenerator& generator) {
    torch::data::Example<> item = get(index);
    item.data = torch::cat({item.data, torch::tensor({static_cast<std::int64_t>(generator.below(1000))})});
    return item;
  }
  std::optional<std::size_t> size() const override { return count; }

  std::size_t count;
};

using Batches = std::vector<torch::data::Example<>>;

template <class Loader>
Batches all_batches(Loader& loader) {
  Batches batches;
  for (auto& batch : loader) batches.push_back({batch.data.clone(), batch.target.clone()});
  return batches;
}

/// What a loop without a loader would make of it.
template <class Sampler>
Batches serial_batches(CountedItems items, Sampler sampler, const DataLoaderOptions& options, std::int64_t epoch) {
  Batches batches;
  sampler.reset();
  while (auto indices = sampler.next(options.batch_size)) {
    if (options.drop_last && indices->size() < options.batch_size) break;
    std::vector<at::Tensor> data, target;
    for (const std::size_t index : *indices) {
      ItemGenerator generator(options.seed, epoch, index);
      const auto item = items.get(index, generator);
      data.push_back(item.data);
      target.push_back(item.target);
    }
    batches.push_back({torch::stack(data), torch::stack(target)});
  }
  return batches;
}

inline bool are_equal(const Batches& left, const Batches& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!torch::equal(left[i].data, right[i].data) || !torch::equal(left[i].target, right[i].target)) return false;
  return true;
}

}  // namespace retinue::test
