#pragma once

#include <ATen/core/Tensor.h>
#include <torch/data/example.h>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/torch/item_generator.h"
#include "retinue/torch/item_layout.h"

/// What a DataLoader knows of a data set of any type.
namespace retinue::detail {

/// A batch to be loaded.
struct BatchJob {
  std::span<const std::size_t> indices;
  std::uint64_t seed;
  std::int64_t epoch;
  ItemMemory memory;
  std::atomic<std::uint32_t>& position;     ///< The item being loaded, which a worker's death is reported with.
  const std::atomic<std::uint32_t>& stops;  ///< Not 0: nobody wants the batch any more.

  /// Returns false if the batch isn't wanted any more.
  bool begin_item(std::size_t at) const {
    position.store(static_cast<std::uint32_t>(at), std::memory_order_relaxed);
    return stops.load(std::memory_order_relaxed) == 0;
  }
  ItemGenerator generator(std::size_t at) const { return ItemGenerator(seed, epoch, indices[at]); }
};

/// Returns the layout of an item, or of a batch without its first dimension. Errors: UsageError for a tensor that isn't
/// a dense tensor of the CPU.
ItemLayout layout_of(const at::Tensor& data, const at::Tensor* target, bool is_batch);
/// Copies the item, or `count` items, to a place in a batch. Errors: UsageError for another layout.
void store(const at::Tensor& data, const at::Tensor* target, std::size_t first, std::optional<std::size_t> count,
           const ItemLayout& layout, const BatchJob& job);

/// Errors: UsageError if get_batch() returned another number of items than it was asked for.
void check_count(std::size_t got, std::span<const std::size_t> indices);

/// Copies a row of a tensor, as contiguous memory.
void copy_row(const at::Tensor& tensor, std::size_t row, std::byte* memory);

/// A data set, without its type.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  virtual std::unique_ptr<BatchSource> copy() const = 0;
  virtual std::optional<std::size_t> size() const = 0;
  /// Loads the item at `index`, if there is no other way to know its layout.
  virtual ItemLayout layout(std::size_t index, ItemGenerator generator) = 0;
  virtual void load(const BatchJob& job, const ItemLayout& layout) = 0;
};

template <class Dataset>
concept GetsWithGenerator = requires(Dataset dataset, std::size_t index, ItemGenerator generator) {
  dataset.get(index, generator);
};
template <class Dataset>
concept Gets = requires(Dataset dataset, std::size_t index) {
  dataset.get(index);
};

template <class Dataset>
concept HasSize = requires(const Dataset& dataset) {
  std::optional<std::size_t>(dataset.size());
};
template <class Dataset>
constexpr bool kHasItems = WritesItems<Dataset> || GetsWithGenerator<Dataset> || Gets<Dataset> || requires {
  typename Dataset::BatchType;
};
template <class Sampler>
concept IsSampler = requires(Sampler sampler) {
  sampler.reset();
  sampler.next(std::size_t{1});
};

template <class T>
struct ItemOfBatch {
  using Type = T;
};
template <class T>
struct ItemOfBatch<std::vector<T>> {
  using Type = T;
};

template <class Dataset>
auto example_type() {
  if constexpr (WritesItems<Dataset>)
    return std::type_identity<typename Dataset::ExampleType>{};
  else if constexpr (GetsWithGenerator<Dataset>)
    return std::type_identity<
        std::decay_t<decltype(std::declval<Dataset&>().get(std::size_t{}, std::declval<ItemGenerator&>()))>>{};
  else if constexpr (Gets<Dataset>)
    return std::type_identity<std::decay_t<decltype(std::declval<Dataset&>().get(std::size_t{}))>>{};
  else
    return std::type_identity<typename ItemOfBatch<typename Dataset::BatchType>::Type>{};
}
/// The type of an item, and of the batch that stacks items.
template <class Dataset>
using ExampleOf = typename decltype(example_type<Dataset>())::type;

template <class Example>
constexpr bool kIsTensors =
    std::is_same_v<Example, torch::data::Example<>> || std::is_same_v<Example, torch::data::TensorExample>;

template <class Example>
const at::Tensor* target_of(const Example& example) {
  if constexpr (std::is_same_v<Example, torch::data::TensorExample>)
    return nullptr;
  else
    return &example.target;
}

template <class Dataset>
class DatasetSource : public BatchSource {
 public:
  explicit DatasetSource(Dataset dataset) : dataset_(std::move(dataset)) {}

  std::unique_ptr<BatchSource> copy() const override { return std::make_unique<DatasetSource>(dataset_); }
  std::optional<std::size_t> size() const override { return dataset_.size(); }

  ItemLayout layout(std::size_t index, [[maybe_unused]] ItemGenerator generator) override {
    if constexpr (WritesItems<Dataset>) {
      return dataset_.item_layout();
    } else if constexpr (kGetsItems) {
      const auto item = get(index, generator);
      return layout_of(item.data, target_of(item), false);
    } else {
      const auto batch = dataset_.get_batch(std::vector<std::size_t>{index});
      if constexpr (kGetsVectors) {
        check_count(batch.size(), {&index, 1});
        return layout_of(batch[0].data, target_of(batch[0]), false);
      } else {
        return layout_of(batch.data, target_of(batch), true);
      }
    }
  }

  void load(const BatchJob& job, const ItemLayout& layout) override {
    if constexpr (WritesItems<Dataset> || kGetsItems) {
      for (std::size_t at = 0; at < job.indices.size() && job.begin_item(at); ++at) load_item(job, at, layout);
    } else if (job.begin_item(0)) {
      const auto batch = dataset_.get_batch(std::vector<std::size_t>(job.indices.begin(), job.indices.end()));
      if constexpr (kGetsVectors) {
        check_count(batch.size(), job.indices);
        for (std::size_t at = 0; at < job.indices.size(); ++at)
          store(batch[at].data, target_of(batch[at]), at, std::nullopt, layout, job);
      } else {
        store(batch.data, target_of(batch), 0, job.indices.size(), layout, job);
      }
    }
  }

 private:
  static constexpr bool kGetsItems = GetsWithGenerator<Dataset> || Gets<Dataset>;
  static constexpr bool kGetsVectors = [] {
    if constexpr (requires { typename Dataset::BatchType; })
      return !std::is_same_v<typename Dataset::BatchType, ExampleOf<Dataset>>;
    else
      return false;
  }();

  auto get(std::size_t index, [[maybe_unused]] ItemGenerator& generator) {
    if constexpr (GetsWithGenerator<Dataset>)
      return dataset_.get(index, generator);
    else
      return dataset_.get(index);
  }

  void load_item(const BatchJob& job, std::size_t at, const ItemLayout& layout) {
    ItemGenerator generator = job.generator(at);
    if constexpr (WritesItems<Dataset>) {
      std::byte* const target = layout.target ? job.memory.target + at * layout.target->bytes() : nullptr;
      dataset_.write_item(job.indices[at], generator, ItemMemory{job.memory.data + at * layout.data.bytes(), target});
    } else {
      const auto item = get(job.indices[at], generator);
      store(item.data, target_of(item), at, std::nullopt, layout, job);
    }
  }

  Dataset dataset_;
};

}  // namespace retinue::detail
