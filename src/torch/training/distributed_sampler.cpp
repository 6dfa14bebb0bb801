#include "retinue/torch/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <atomic>

#include "retinue/base/error.h"

namespace retinue {

struct DistributedSampler::SharedEpoch {
  std::atomic<std::int64_t> value{0};
};

namespace {

DistributedSamplerOptions options_of(const ProcessGroup& group, const GroupSamplerOptions& options) {
  if (!group) throw UsageError("DistributedSampler: the process group is null");
  return {.num_replicas = group->getSize(),
          .rank = group->getRank(),
          .shuffle = options.shuffle,
          .seed = options.seed,
          .drop_last = options.drop_last};
}

/// Python's formulas: drop_last rounds down only where there is something to drop.
std::size_t indices_per_rank(std::size_t dataset_size, const DistributedSamplerOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.num_replicas);
  return options.drop_last ? dataset_size / ranks : (dataset_size + ranks - 1) / ranks;
}

torch::Tensor order_of_epoch(std::size_t dataset_size, const DistributedSamplerOptions& options, std::int64_t epoch) {
  const auto count = static_cast<std::int64_t>(dataset_size);
  if (!options.shuffle) return torch::arange(count, torch::kInt64);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(options.seed + epoch));
  return torch::randperm(count, generator, torch::kInt64);
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options)
    : dataset_size_(dataset_size), options_(options), epoch_(std::make_shared<SharedEpoch>()) {
  if (options_.num_replicas < 1)
    throw UsageError(c10::str("DistributedSampler: num_replicas is ", options_.num_replicas,
                              "; it must be the number of ranks, at least 1"));
  if (options_.rank < 0 || options_.rank >= options_.num_replicas)
    throw UsageError(
        c10::str("DistributedSampler: rank ", options_.rank, " is outside of [0, ", options_.num_replicas, ")"));
}

DistributedSampler::DistributedSampler(std::size_t dataset_size, const ProcessGroup& group, GroupSamplerOptions options)
    : DistributedSampler(dataset_size, options_of(group, options)) {}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  epoch_->value.store(epoch, std::memory_order_relaxed);
}

std::int64_t DistributedSampler::epoch() const {
  return epoch_->value.load(std::memory_order_relaxed);
}

std::size_t DistributedSampler::size() const {
  return indices_per_rank(dataset_size_, options_);
}

void DistributedSampler::fill_indices() {
  const std::int64_t now = epoch();
  const torch::Tensor order = order_of_epoch(dataset_size_, options_, now);
  const auto* data = order.const_data_ptr<std::int64_t>();
  const auto ranks = static_cast<std::size_t>(options_.num_replicas);
  indices_.resize(size());
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    const std::size_t place = static_cast<std::size_t>(options_.rank) + i * ranks;
    indices_[i] = static_cast<std::size_t>(data[place % dataset_size_]);  // past the end: the head again
  }
  filled_epoch_ = now;
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && *new_size != dataset_size_) {
    dataset_size_ = *new_size;
    filled_epoch_.reset();
  }
  position_ = 0;
  if (filled_epoch_ != epoch()) fill_indices();
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  if (!filled_epoch_) fill_indices();
  if (position_ == indices_.size()) return std::nullopt;
  const std::size_t count = std::min(batch_size, indices_.size() - position_);
  const auto begin = indices_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("epoch", torch::tensor(filled_epoch_.value_or(epoch()), torch::kInt64), /*is_buffer=*/true);
  archive.write("position", torch::tensor(static_cast<std::int64_t>(position_), torch::kInt64), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty({}, torch::kInt64);
  torch::Tensor position = torch::empty({}, torch::kInt64);
  archive.read("epoch", epoch, /*is_buffer=*/true);
  archive.read("position", position, /*is_buffer=*/true);
  const auto place = position.item<std::int64_t>();
  if (place < 0 || static_cast<std::size_t>(place) > size())
    throw UsageError(c10::str("DistributedSampler: the archive's position ", place, " is outside of this rank's ",
                              size(), " indices; was it saved with another data set or number of ranks?"));
  set_epoch(epoch.item<std::int64_t>());
  fill_indices();
  position_ = static_cast<std::size_t>(place);
}

}  // namespace retinue
