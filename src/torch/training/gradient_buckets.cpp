#include "torch/training/gradient_buckets.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>

#include "retinue/base/error.h"
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

/// A tensor without memory, of the type and layout that autograd gives to the parameter's gradients.
at::Tensor layout_of_gradient(const at::Tensor& parameter) {
  const at::TensorOptions options = parameter.options().device(at::kMeta).requires_grad(false);
  return parameter.is_non_overlapping_and_dense() ? at::empty_strided(parameter.sizes(), parameter.strides(), options)
                                                  : at::empty(parameter.sizes(), options);
}

/// Strides of dimensions with one element mean nothing.
bool has_layout(const at::Tensor& gradient, const at::Tensor& layout) {
  if (gradient.scalar_type() != layout.scalar_type() || gradient.sizes() != layout.sizes()) return false;
  for (std::int64_t i = 0; i < layout.dim(); ++i)
    if (layout.size(i) > 1 && gradient.stride(i) != layout.stride(i)) return false;
  return gradient.storage_offset() == 0;
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
      hook_(options.hook),
      others_read_(options.others_read),
      bucket_of_(parameters_.size()),
      is_ready_(parameters_.size()) {
  for (const at::Tensor& parameter : parameters_) {
    layouts_.push_back(layout_of_gradient(parameter));
    placed_.emplace_back(layouts_.back().getIntrusivePtr());  // No gradient.
  }
  if (group_->getSize() == 1) return;
  ShmBackend* const backend = options.reducer == ReducerKind::kC10d ? nullptr : shm_backend_of(group_, parameters_);
  if (backend == nullptr && options.reducer == ReducerKind::kJobMemory)
    throw UsageError(c10::str("DistributedDataParallel: the reducer kJobMemory needs CPU parameters and ranks that ",
                              "share memory; this group's backend is ", group_->getBackendName()));
  // In place, one call for all gradients is as good as any; a hook may make copies.
  assign_buckets(backend == nullptr || hook_ ? options.cap_mb * kMiB : SIZE_MAX);
  if (backend != nullptr) make_slots(backend->memory());
}

/// Buckets in the order in which backward probably fills them.
void GradientBuckets::assign_buckets(std::size_t cap_bytes) {
  const std::vector<std::size_t> limits =
      cap_bytes == SIZE_MAX ? std::vector{SIZE_MAX} : std::vector{std::min(kMiB, cap_bytes), cap_bytes};
  std::vector<at::Tensor> backwards(parameters_.rbegin(), parameters_.rend());
  const auto assigned = c10d::compute_bucket_assignment_by_size(backwards, limits);
  for (const std::vector<std::size_t>& indices : std::get<0>(assigned)) {
    Bucket& bucket = buckets_.emplace_back();
    for (const std::size_t index : indices) bucket.parameters.push_back(parameters_.size() - 1 - index);
  }
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    for (const std::size_t parameter : buckets_[i].parameters) bucket_of_[parameter] = i;
}

void GradientBuckets::make_slots(const std::shared_ptr<JobMemory>& memory) {
  std::vector<std::size_t> bytes;
  for (const Bucket& bucket : buckets_)
    for (const std::size_t parameter : bucket.parameters) bytes.push_back(layouts_[parameter].nbytes());
  slots_ = std::make_unique<TensorSlots>(memory, bytes);
}

/// Whether the gradient can be averaged where it is. One that the program has too keeps its value, unless it was
/// averaged before, as in a loop that sets gradients to zero.
bool GradientBuckets::is_placed(std::size_t parameter, const at::Tensor& gradient, bool in_hook) const {
  if (!has_layout(gradient, layouts_[parameter])) return false;
  if (placed_[parameter].lock() == gradient.getIntrusivePtr()) return true;
  const c10::Storage& storage = gradient.storage();
  if (slots_ && gradient.numel() > 0 && !TensorSlots::contains(storage.data())) return false;
  const std::size_t own = in_hook ? 2 : 1;  // While hooks run, autograd has what it made the gradient of.
  return gradient.use_count() == 1 && storage.use_count() <= own;
}

at::Tensor GradientBuckets::make_gradient(std::size_t parameter) {
  const at::Tensor& layout = layouts_[parameter];
  const at::TensorOptions options = layout.options().device(parameters_[parameter].device());
  if (slots_ && layout.numel() > 0) {
    c10::DataPtr data = slots_->take(layout.nbytes());
    if (!data && others_read_) data = allocate_shared(ShmBackend::of(*group_)->memory(), layout.nbytes());
    if (data) {
      c10::Storage storage(c10::Storage::use_byte_size_t(), layout.nbytes(), std::move(data), /*allocator=*/nullptr,
                           /*resizable=*/false);
      return at::empty({0}, options).set_(std::move(storage), 0, layout.sizes(), layout.strides());
    }
  }
  return at::empty_strided(layout.sizes(), layout.strides(), options);
}

void GradientBuckets::begin() {
  next_bucket_ = 0;
  std::fill(is_ready_.begin(), is_ready_.end(), 0);
  for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
  waits_.clear();
}

void GradientBuckets::place(std::size_t parameter, bool in_hook) {
  const at::NoGradGuard no_grad;
  at::Tensor& gradient = parameters_[parameter].mutable_grad();
  if (!gradient.defined()) {
    gradient = make_gradient(parameter).zero_();
  } else if (!is_placed(parameter, gradient, in_hook)) {
    const at::Tensor placed = make_gradient(parameter);
    placed.copy_(gradient);
    gradient = placed;
  }
  placed_[parameter] = gradient.getIntrusivePtr();
}

void GradientBuckets::exclude(std::size_t parameter) {
  if (!overlaps_ || bucket_of_[parameter] == kNoBucket) return;
  std::erase(buckets_[bucket_of_[parameter]].parameters, parameter);
  bucket_of_[parameter] = kNoBucket;
  excluded_.push_back(parameter);
}

void GradientBuckets::ready(std::size_t parameter) {
  if (bucket_of_[parameter] == kNoBucket) return;
  place(parameter, /*in_hook=*/true);
  is_ready_[parameter] = 1;
  --buckets_[bucket_of_[parameter]].missing;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].missing == 0) start_next();
}

void GradientBuckets::start_rest() {
  while (next_bucket_ < buckets_.size()) start_next();
}

void GradientBuckets::start_next() {
  GradBucket bucket{.index = next_bucket_, .is_last = next_bucket_ + 1 == buckets_.size() && excluded_.empty()};
  for (const std::size_t member : buckets_[next_bucket_].parameters) {
    bucket.gradients.push_back(is_ready_[member] ? parameters_[member].grad() : make_gradient(member).zero_());
    bucket.parameters.push_back(parameters_[member]);
  }
  start(std::move(bucket));
  ++next_bucket_;
}

void GradientBuckets::start_agreed(std::span<const char> takes_part) {
  if (overlaps_ && !excluded_.empty()) start_placed({.index = buckets_.size(), .is_last = true}, excluded_, takes_part);
  if (overlaps_) return;
  for (std::size_t i = 0; i < buckets_.size(); ++i)
    start_placed({.index = i, .is_last = i + 1 == buckets_.size()}, buckets_[i].parameters, takes_part);
}

void GradientBuckets::start_placed(GradBucket bucket, const std::vector<std::size_t>& parameters,
                                   std::span<const char> takes_part) {
  for (const std::size_t parameter : parameters) {
    if (!takes_part[parameter]) continue;
    place(parameter, /*in_hook=*/false);
    bucket.gradients.push_back(parameters_[parameter].grad());
    bucket.parameters.push_back(parameters_[parameter]);
  }
  start(std::move(bucket));
}

void GradientBuckets::start(GradBucket bucket) {
  if (bucket.gradients.empty() && !(hook_ && bucket.is_last)) return;
  if (hook_) {
    waits_.push_back(hook_->start(bucket, group_));
    return;
  }
  const at::NoGradGuard no_grad;
  for (at::Tensor& gradient : bucket.gradients) gradient = flat(gradient);
  auto work = reduce_in_backward(group_, std::move(bucket.gradients), c10d::ReduceOp::AVG, /*async_op=*/!slots_);
  if (work) waits_.push_back([work = std::move(work)] { work->wait(); });
}

void GradientBuckets::wait() {
  for (const auto& wait : std::exchange(waits_, {})) wait();
}

}  // namespace retinue
