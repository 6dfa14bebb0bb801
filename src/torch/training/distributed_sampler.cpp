#include "retinue/torch/distributed_sampler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/StringUtil.h>
#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "retinue/base/error.h"

namespace retinue {

struct DistributedSampler::SharedPass {
  std::mutex mutex;
  std::int64_t epoch = 0;
  std::size_t start = 0;                    ///< Of the pass that began last, in the order of its epoch.
  std::optional<std::size_t> resume_start;  ///< Of the next one.
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
std::size_t indices_per_rank(std::size_t count, const DistributedSamplerOptions& options) {
  const auto ranks = static_cast<std::size_t>(options.num_replicas);
  return options.drop_last ? count / ranks : (count + ranks - 1) / ranks;
}

torch::Tensor order_of_epoch(std::size_t dataset_size, const DistributedSamplerOptions& options, std::int64_t epoch) {
  const auto count = static_cast<std::int64_t>(dataset_size);
  if (!options.shuffle) return torch::arange(count, torch::kInt64);
  auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(options.seed + epoch));
  return torch::randperm(count, generator, torch::kInt64);
}

}  // namespace

DistributedSampler::DistributedSampler(std::size_t dataset_size, DistributedSamplerOptions options)
    : dataset_size_(dataset_size), options_(options), shared_(std::make_shared<SharedPass>()) {
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
  const std::lock_guard lock(shared_->mutex);
  if (epoch != shared_->epoch) shared_->resume_start.reset();
  shared_->epoch = epoch;
}

std::int64_t DistributedSampler::epoch() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->epoch;
}

DistributedSamplerState DistributedSampler::state_at(std::int64_t epoch, std::size_t start,
                                                     std::size_t consumed) const {
  // Where the last indices are repeated ones, the ranks have consumed more than there are.
  const std::size_t all = start + consumed * static_cast<std::size_t>(options_.num_replicas);
  return {.epoch = epoch, .consumed = std::min(all, dataset_size_)};
}

DistributedSamplerState DistributedSampler::state(std::size_t consumed) const {
  const std::lock_guard lock(shared_->mutex);
  return state_at(shared_->epoch, shared_->start, consumed);
}

void DistributedSampler::resume_at(const DistributedSamplerState& state) {
  if (state.consumed > dataset_size_)
    throw UsageError(c10::str("DistributedSampler: ", state.consumed, " indices were consumed, but the data set has ",
                              dataset_size_, "; was the state saved with another data set?"));
  const std::lock_guard lock(shared_->mutex);
  shared_->epoch = state.epoch;
  shared_->resume_start = state.consumed;
}

void DistributedSampler::resume_at(std::size_t consumed) {
  if (consumed > size())
    throw UsageError(
        c10::str("DistributedSampler: resume_at(", consumed, "), but an epoch has ", size(), " indices for each rank"));
  resume_at(state_at(epoch(), 0, consumed));
}

std::size_t DistributedSampler::size() const {
  return indices_per_rank(dataset_size_, options_);
}

void DistributedSampler::fill_indices() {
  const torch::Tensor order = order_of_epoch(dataset_size_, options_, *filled_epoch_);
  const auto* data = order.const_data_ptr<std::int64_t>();
  const auto ranks = static_cast<std::size_t>(options_.num_replicas);
  indices_.resize(indices_per_rank(dataset_size_ - filled_start_, options_));
  for (std::size_t i = 0; i < indices_.size(); ++i) {
    const std::size_t place = filled_start_ + static_cast<std::size_t>(options_.rank) + i * ranks;
    indices_[i] = static_cast<std::size_t>(data[place % dataset_size_]);  // past the end: the head again
  }
}

void DistributedSampler::begin_pass() {
  position_ = 0;
  const auto before = std::pair(filled_epoch_, filled_start_);
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->start = std::min(std::exchange(shared_->resume_start, std::nullopt).value_or(0), dataset_size_);
    filled_epoch_ = shared_->epoch;
    filled_start_ = shared_->start;
  }
  if (before != std::pair(filled_epoch_, filled_start_)) fill_indices();
}

void DistributedSampler::reset(std::optional<std::size_t> new_size) {
  if (new_size && *new_size != dataset_size_) {
    dataset_size_ = *new_size;
    filled_epoch_.reset();
  }
  begin_pass();
}

std::optional<std::vector<std::size_t>> DistributedSampler::next(std::size_t batch_size) {
  if (!filled_epoch_) begin_pass();
  if (position_ == indices_.size()) return std::nullopt;
  const std::size_t count = std::min(batch_size, indices_.size() - position_);
  const auto begin = indices_.begin() + static_cast<std::ptrdiff_t>(position_);
  position_ += count;
  return std::vector<std::size_t>(begin, begin + static_cast<std::ptrdiff_t>(count));
}

void DistributedSampler::save(torch::serialize::OutputArchive& archive) const {
  DistributedSamplerState now;
  if (filled_epoch_) {
    now = state_at(*filled_epoch_, filled_start_, position_);
  } else {
    const std::lock_guard lock(shared_->mutex);
    now = state_at(shared_->epoch, shared_->resume_start.value_or(0), 0);
  }
  archive.write("epoch", torch::tensor(now.epoch, torch::kInt64), /*is_buffer=*/true);
  archive.write("consumed", torch::tensor(static_cast<std::int64_t>(now.consumed), torch::kInt64), /*is_buffer=*/true);
}

void DistributedSampler::load(torch::serialize::InputArchive& archive) {
  torch::Tensor epoch = torch::empty({}, torch::kInt64);
  torch::Tensor consumed = torch::empty({}, torch::kInt64);
  archive.read("epoch", epoch, /*is_buffer=*/true);
  std::int64_t ranks = 1;
  if (!archive.try_read("consumed", consumed, /*is_buffer=*/true)) {  // Written by Retinue before 0.7.0.
    archive.read("position", consumed, /*is_buffer=*/true);
    ranks = options_.num_replicas;
  }
  const auto all = consumed.item<std::int64_t>() * ranks;
  // The last indices may be repeated ones.
  const std::size_t end = size() * static_cast<std::size_t>(options_.num_replicas);
  if (all < 0 || static_cast<std::size_t>(all) > std::max(end, dataset_size_))
    throw UsageError(c10::str("DistributedSampler: by the archive ", all,
                              " indices were consumed, but the data set has ", dataset_size_,
                              "; was it saved with another data set?"));
  resume_at(DistributedSamplerState{.epoch = epoch.item<std::int64_t>(),
                                    .consumed = std::min(static_cast<std::size_t>(all), dataset_size_)});
  filled_epoch_.reset();
}

}  // namespace retinue
