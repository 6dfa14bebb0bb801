#include "torch/training/gradient_buckets.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "torch/backend/shm_backend.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kNoBucket = SIZE_MAX;

const CallSite kInBackward{"DistributedDataParallel's backward", 0};

/// Null unless all tensors are on the CPU, and the ranks share memory.
ShmBackend* shm_backend_of(const ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  const bool all_on_cpu = std::all_of(parameters.begin(), parameters.end(),
                                      [](const at::Tensor& parameter) { return parameter.device().is_cpu(); });
  return all_on_cpu ? ShmBackend::of(*group) : nullptr;
}

/// A part of a larger piece of memory, which it holds.
c10::DataPtr part_of(const std::shared_ptr<const c10::DataPtr>& whole, std::size_t offset) {
  using Held = std::shared_ptr<const c10::DataPtr>;
  const auto deleter = [](void* context) { delete static_cast<Held*>(context); };
  return {static_cast<std::byte*>(whole->get()) + offset, new Held(whole), deleter, whole->device()};
}

/// The layout in which autograd makes gradients.
at::Tensor empty_gradient(const at::Tensor& parameter) {
  const at::TensorOptions options = parameter.options().requires_grad(false);
  return parameter.is_non_overlapping_and_dense() ? at::empty_strided(parameter.sizes(), parameter.strides(), options)
                                                  : at::empty(parameter.sizes(), options);
}

/// Its elements in the order of its memory: a dense tensor that isn't contiguous would be copied by a collective.
at::Tensor flat(const at::Tensor& gradient) {
  return gradient.is_contiguous() ? gradient : gradient.as_strided({gradient.numel()}, {1}, gradient.storage_offset());
}

}  // namespace

c10::intrusive_ptr<c10d::Work> reduce_in_backward(const ProcessGroup& group, std::vector<at::Tensor> tensors,
                                                  c10d::ReduceOp op, bool async_op) {
  if (TensorBackend* backend = TensorBackend::of(*group, tensors.front()))
    return backend->all_reduce_coalesced(tensors, op, {.async_op = async_op, .site = kInBackward});
  // LibTorch's gloo knows no average.
  const bool divides = op == c10d::ReduceOp::AVG && tensors.front().device().is_cpu();
  for (at::Tensor& tensor : tensors)
    if (divides) tensor.div_(group->getSize());
  c10d::AllreduceCoalescedOptions options;
  options.reduceOp = divides ? c10d::ReduceOp(c10d::ReduceOp::SUM) : std::move(op);
  options.asyncOp = async_op;
  c10::intrusive_ptr<c10d::Work> work = group->allreduce_coalesced(tensors, options);
  if (!async_op && work) work->wait();
  return async_op ? work : nullptr;
}

GradientBuckets::GradientBuckets(ProcessGroup group, std::vector<at::Tensor> parameters, const Options& options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      homes_(parameters_.size()),
      bucket_of_(parameters_.size()),
      is_ready_(parameters_.size()) {
  if (group_->getSize() == 1) return;
  ShmBackend* const backend = shm_backend_of(group_, parameters_);
  // Ranks that share memory meet once in a backward, not once in each bucket, where now the one is late and now the
  // other. Nothing is lost by it: the ranks' own threads do the averaging, and have gradients to compute until then.
  overlaps_ = options.overlaps && backend == nullptr;
  assign_buckets(options.cap_mb);
  if (backend != nullptr) make_shared_memory(backend->memory());
  for (std::size_t i = 0; i < parameters_.size(); ++i) homes_[i] = make_home(i);
}

/// Buckets in the order in which backward probably fills them.
void GradientBuckets::assign_buckets(std::size_t cap_mb) {
  const std::vector<std::size_t> limits =
      overlaps_ ? std::vector{std::min(kMiB, cap_mb * kMiB), cap_mb * kMiB} : std::vector{SIZE_MAX};
  std::vector<at::Tensor> backwards(parameters_.rbegin(), parameters_.rend());
  const auto assigned = c10d::compute_bucket_assignment_by_size(backwards, limits);
  for (const std::vector<std::size_t>& indices : std::get<0>(assigned)) {
    Bucket& bucket = buckets_.emplace_back();
    for (const std::size_t index : indices) bucket.parameters.push_back(parameters_.size() - 1 - index);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    for (const std::size_t parameter : buckets_[i].parameters) bucket_of_[parameter] = i;
}

void GradientBuckets::make_shared_memory(const std::shared_ptr<JobMemory>& memory) {
  std::size_t bytes = 0;
  offsets_.resize(parameters_.size());
  for (const Bucket& bucket : buckets_)
    for (const std::size_t parameter : bucket.parameters) {
      offsets_[parameter] = bytes;
      bytes += (parameters_[parameter].nbytes() + kAlignment - 1) / kAlignment * kAlignment;
    }
  shared_ = std::make_shared<const c10::DataPtr>(allocate_shared(memory, bytes));
}

GradientBuckets::Home GradientBuckets::make_home(std::size_t parameter) const {
  at::Tensor tensor = empty_gradient(parameters_[parameter].detach());
  if (shared_ && tensor.numel() > 0) tensor.storage().set_data_ptr_noswap(part_of(shared_, offsets_[parameter]));
  const void* const memory = tensor.storage().data();
  return {.tensor = std::move(tensor), .memory = memory};
}

/// Whether nobody has a tensor of that memory.
bool GradientBuckets::is_free(const Home& home) const {
  const std::size_t own = home.gradient.is_same(home.tensor) ? 2 : 1;
  return home.tensor.use_count() == own && home.tensor.storage().use_count() == 1;
}

void GradientBuckets::begin() {
  next_bucket_ = 0;
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  works_.clear();
}

void GradientBuckets::place(std::size_t parameter) {
  if (buckets_.empty()) return;  // A world of one.
  Home& home = homes_[parameter];
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (gradient.defined() && gradient.is_same(home.gradient)) return;
  if (home.tensor.storage().data() != home.memory) home = make_home(parameter);
  const at::NoGradGuard no_grad;
  home.gradient = is_free(home) ? home.tensor : at::empty_like(home.tensor);
  if (gradient.defined())
    home.gradient.copy_(gradient);
  else
    home.gradient.zero_();
  gradient = home.gradient;
}

void GradientBuckets::exclude(std::size_t parameter) {
  if (!overlaps_ || bucket_of_[parameter] == kNoBucket) return;
  std::erase(buckets_[bucket_of_[parameter]].parameters, parameter);
  bucket_of_[parameter] = kNoBucket;
  excluded_.push_back(parameter);
}

void GradientBuckets::ready(std::size_t parameter) {
  if (bucket_of_[parameter] == kNoBucket) return;
  is_ready_[parameter] = 1;
  --buckets_[bucket_of_[parameter]].missing;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) start_next();
}

void GradientBuckets::start_rest() {
  while (next_bucket_ < buckets_.size()) start_next();
}

void GradientBuckets::start_next() {
  std::vector<at::Tensor> gradients;
  for (const std::size_t member : buckets_[next_bucket_].parameters)
    gradients.push_back(is_ready_[member] ? homes_[member].gradient : at::zeros_like(homes_[member].tensor));
  start(std::move(gradients));
  ++next_bucket_;
}

void GradientBuckets::start_agreed(std::span<const char> takes_part) {
  if (overlaps_) return start_placed(excluded_, takes_part);
  for (const Bucket& bucket : buckets_) start_placed(bucket.parameters, takes_part);
}

void GradientBuckets::start_placed(const std::vector<std::size_t>& parameters, std::span<const char> takes_part) {
  std::vector<at::Tensor> gradients;
  for (const std::size_t parameter : parameters) {
    if (!takes_part[parameter]) continue;
    place(parameter);
    gradients.push_back(homes_[parameter].gradient);
  }
  start(std::move(gradients));
}

void GradientBuckets::start(std::vector<at::Tensor> gradients) {
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : gradients) gradient = flat(gradient);
  if (auto work = reduce_in_backward(group_, std::move(gradients), c10d::ReduceOp::AVG, /*async_op=*/!shared_))
    works_.push_back(std::move(work));
}

void GradientBuckets::wait() {
  for (const auto& work : std::exchange(works_, {})) work->wait();
}

}  // namespace retinue
