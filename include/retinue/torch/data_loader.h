#pragma once

#include <torch/data/iterator.h>
#include <torch/data/samplers/random.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/detail/batch_source.h"

namespace retinue {

/// What the workers of a DataLoader are.
enum class WorkerKind {
  kThreads,  ///< Threads of this process. Each has a copy of the data set, as in LibTorch's DataLoader.
  /// Forks of this process, made with the loader: for a data set that is not thread-safe, such as one that uses a
  /// library with global state, and for one that may crash.
  kProcesses,
};

struct DataLoaderOptions {
  std::size_t batch_size = 1;
  std::size_t workers = 0;   ///< 0: the loop itself loads each batch.
  std::size_t prefetch = 0;  ///< Batches that workers load ahead of the loop, together. 0: two for each worker.
  WorkerKind kind = WorkerKind::kThreads;
  bool drop_last = false;                ///< Leaves out the last batch if it has fewer than `batch_size` items.
  std::uint64_t seed = 0;                ///< With the epoch and an item's index, the seed of the item's ItemGenerator.
  std::chrono::milliseconds timeout{0};  ///< The longest that the loop waits for a batch; 0: as long as it takes.
  /// When a wait for a batch is reported on standard error, and again after times that double. 0: never. Unset: the
  /// value of RETINUE_LATE_AFTER_S, in seconds, or else 10 s.
  std::optional<std::chrono::nanoseconds> late_after = std::nullopt;
};

/// A worker couldn't load an item: the data set threw, or the worker process died there twice.
class DataLoaderError : public Error {
 public:
  DataLoaderError(const std::string& message, std::size_t worker, std::size_t index)
      : Error(message), worker_(worker), index_(index) {}

  std::size_t worker() const noexcept { return worker_; }
  /// Returns the item's index in the data set. If the data set loads whole batches, it is the first one's.
  std::size_t index() const noexcept { return index_; }

 private:
  std::size_t worker_;
  std::size_t index_;
};

namespace detail {

/// A DataLoader without types.
class LoaderEngine {
 public:
  using NextIndices = std::function<std::optional<std::vector<std::size_t>>()>;
  struct Batch {
    at::Tensor data;
    at::Tensor target;
  };

  LoaderEngine(std::unique_ptr<BatchSource> source, const DataLoaderOptions& options);
  ~LoaderEngine();
  LoaderEngine(const LoaderEngine&) = delete;
  LoaderEngine& operator=(const LoaderEngine&) = delete;

  /// Begins a pass and returns its number. The last one's batches are dropped.
  std::size_t begin_pass(std::optional<std::int64_t> epoch, NextIndices next_indices);
  /// Returns the pass's next batch. Errors: UsageError for a pass that isn't the last one.
  std::optional<Batch> next(std::size_t pass);
  std::size_t consumed() const noexcept;
  std::vector<int> worker_pids() const;
  std::optional<std::size_t> dataset_size() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace detail

/// Loads batches of a data set in workers, ahead of the loop that consumes them; make_data_loader() makes one.
///
/// The batches, and their order, are the same for any number and any kind of workers. Random augmentations are, too, if
/// the data set takes its random numbers from the ItemGenerator that it gets. LibTorch's own random functions use one
/// generator for all threads of a process: with kThreads their numbers vary from run to run. With kProcesses they
/// don't: the worker seeds that generator for each batch.
///
/// Batches are in job memory, if this process has a Runtime. The memory is used again once the loop has let go of all
/// tensors of a batch; a batch that was sent to another process gets new memory.
///
/// If a worker process dies, Retinue says so on standard error, replaces it, and loads the rest again. If the next
/// worker dies in the same item, the loop gets a DataLoaderError. Workers end with the loader, and worker processes
/// with this process, however it ends.
///
/// Threads: one at a time. Blocking: advancing the loop waits for the next batch; destruction and begin() wait for the
/// items that worker threads are in.
/// Errors of the loop: DataLoaderError; UsageError for items of different sizes or types; TimeoutError after
/// `timeout`; SharedMemoryExhausted; SystemError if a worker can't be replaced; without workers, what the data set
/// throws. After an error: the next begin() starts a new pass.
template <class Dataset, class Sampler>
class DataLoader {
  static_assert(
      std::is_copy_constructible_v<Dataset>,
      "a DataLoader's workers have copies of the data set, which this one doesn't allow: let it hold its data "
      "by a std::shared_ptr");
  static_assert(detail::HasSize<Dataset>, "a DataLoader's data set needs the member std::size_t size() const");
  static_assert(detail::kHasItems<Dataset>,
                "a DataLoader's data set needs get(std::size_t), or what retinue/torch/item_layout.h describes");
  static_assert(detail::IsSampler<Sampler>,
                "make_data_loader: this is no sampler, which has reset() and next(batch_size), and the options are a "
                "retinue::DataLoaderOptions");

 public:
  using BatchType = detail::ExampleOf<Dataset>;
  using Iterator = torch::data::Iterator<BatchType>;

  DataLoader(Dataset dataset, Sampler sampler, const DataLoaderOptions& options)
      : sampler_(std::move(sampler)),
        options_(options),
        engine_(std::make_unique<detail::DatasetSource<Dataset>>(std::move(dataset)), options) {
    static_assert(detail::kIsTensors<BatchType>, "a DataLoader stacks items that are an Example<> or a TensorExample");
  }

  /// Begins a pass: resets the sampler. It ends a pass that isn't over.
  Iterator begin() {
    sampler_.reset();
    std::optional<std::int64_t> epoch;
    if constexpr (requires { sampler_.epoch(); }) epoch = sampler_.epoch();
    const std::size_t pass = engine_.begin_pass(epoch, [this] { return next_indices(); });
    return Iterator(std::make_unique<torch::data::detail::ValidIterator<BatchType>>([this, pass] {
      std::optional<BatchType> batch;
      if (auto loaded = engine_.next(pass)) batch = example(*std::move(loaded));
      return batch;
    }));
  }
  Iterator end() { return Iterator(std::make_unique<torch::data::detail::SentinelIterator<BatchType>>()); }

  /// Returns how many indices the loop has consumed since its pass began, with those of the batch that it has now:
  /// what DistributedSampler::state() and CheckpointState::consumed need.
  std::size_t consumed() const noexcept { return engine_.consumed(); }
  const DataLoaderOptions& options() const noexcept { return options_; }
  /// Returns the process ids of the workers, by worker; none for threads.
  std::vector<int> worker_pids() const { return engine_.worker_pids(); }

 private:
  std::optional<std::vector<std::size_t>> next_indices() {
    auto indices = sampler_.next(options_.batch_size);
    if (indices && indices->size() < options_.batch_size && options_.drop_last) indices.reset();
    return indices;
  }

  static BatchType example(detail::LoaderEngine::Batch batch) {
    if constexpr (std::is_same_v<BatchType, torch::data::TensorExample>)
      return {std::move(batch.data)};
    else
      return {std::move(batch.data), std::move(batch.target)};
  }

  Sampler sampler_;
  DataLoaderOptions options_;
  detail::LoaderEngine engine_;
};

/// Returns a loader of batches of `dataset`, in the order of `sampler`, for a loop: for (auto& batch : *loader).
///
/// `dataset` is a data set of LibTorch with random access, a MapDataset of one, or any class with size() and one of:
/// get(index); get(index, ItemGenerator&); item_layout() and write_item(), as WritesItems describes. Items are
/// torch::data::Example<> or TensorExample, all of the same sizes and types. Batches have one dimension more. A
/// transform that stacks, such as LibTorch's Stack, is not needed, but does no harm.
///
/// The loader makes copies of the data set and of the sampler. It loads one item to learn sizes and types, unless the
/// data set has item_layout().
/// Errors: UsageError for invalid options, and for kProcesses without a Runtime; SystemError if a worker can't be
/// started; whatever the data set throws for that item, which is item 0.
template <class Dataset, class Sampler>
requires(!std::is_same_v<std::decay_t<Sampler>, DataLoaderOptions>)
    std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, Sampler sampler,
                                                                   const DataLoaderOptions& options = {}) {
  return std::make_unique<DataLoader<Dataset, Sampler>>(std::move(dataset), std::move(sampler), options);
}

/// As above, with a sampler of the given type for the data set's size; as LibTorch's, it is random by default.
template <class Sampler = torch::data::samplers::RandomSampler, class Dataset>
std::unique_ptr<DataLoader<Dataset, Sampler>> make_data_loader(Dataset dataset, const DataLoaderOptions& options = {}) {
  static_assert(detail::HasSize<Dataset>, "make_data_loader: a data set needs the member std::size_t size() const");
  const std::optional<std::size_t> size = dataset.size();
  if (!size) throw UsageError("make_data_loader: the data set has no size; give a sampler");
  return std::make_unique<DataLoader<Dataset, Sampler>>(std::move(dataset), Sampler(*size), options);
}

}  // namespace retinue
