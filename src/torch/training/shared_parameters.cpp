#include "torch/training/shared_parameters.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "retinue/base/error.h"
#include "retinue/torch/objects.h"
#include "torch/backend/shm_backend.h"
#include "torch/groups/failure.h"
#include "torch/groups/rank_agreement.h"
#include "torch/tensors/shared_storage.h"

namespace retinue {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void refuse_gaps(const at::Tensor& parameter) {
  if (!parameter.is_non_overlapping_and_dense())
    throw UsageError(c10::str("a parameter of shape ", parameter.sizes(), " has the strides ", parameter.strides(),
                              ", with gaps between its elements: make it contiguous() before"));
}

}  // namespace

FlatLayout::FlatLayout(const std::vector<at::Tensor>& tensors, int parts) {
  for (const at::Tensor& tensor : tensors) {
    begins.push_back(bytes);
    bytes = round_up(bytes + tensor.nbytes(), kAlignment);
  }
  bytes = round_up(std::max(bytes, kAlignment), kAlignment * static_cast<std::size_t>(parts));
}

void move_into(const at::Tensor& memory, const FlatLayout& layout, const std::vector<at::Tensor>& tensors,
               bool copies) {
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& tensor : tensors) refuse_gaps(tensor);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& tensor = tensors[i];
    const auto offset = static_cast<std::int64_t>(layout.begins[i] / tensor.element_size());
    const at::Tensor moved = at::empty({0}, tensor.options().requires_grad(false))
                                 .set_(memory.storage(), offset, tensor.sizes(), tensor.strides());
    if (copies) moved.copy_(tensor);
    at::Tensor(tensor).set_data(moved);
  }
}

at::Tensor make_shared_memory(std::string_view call, std::size_t bytes, const ProcessGroup& group,
                              const std::source_location& where) {
  if (group->getSize() == 1) return at::empty({static_cast<std::int64_t>(bytes)}, at::kByte);
  const std::shared_ptr<JobMemory>& job_memory = ShmBackend::of(*group)->memory();
  const std::string doing = c10::str(call, ": cannot share ", bytes, " bytes");
  c10::Storage storage;
  std::pair<Failure, std::string> made;  // With the handle.
  if (group->getRank() == 0)
    made.first = failure_of([&] {
      storage = c10::Storage(c10::Storage::use_byte_size_t(), bytes, allocate_shared(job_memory, bytes),
                             /*allocator=*/nullptr, /*resizable=*/false);
      const BlockHandle handle = sent_block(storage).handle();
      made.second.assign(reinterpret_cast<const char*>(&handle), sizeof handle);
    });
  broadcast_object(made, group, 0, where);
  if (made.first.exception) std::rethrow_exception(made.first.exception);
  if (made.first) throw_failure(doing, made.first, 0, group->getSize());
  // Afterwards every rank holds it.
  throw_if_any_failed(doing, failure_of([&] {
                        if (group->getRank() == 0) return;
                        BlockHandle handle;
                        std::memcpy(&handle, made.second.data(), sizeof handle);
                        storage = received_storage(job_memory, handle, bytes);
                      }),
                      group, where);
  return at::empty({0}, at::kByte).set_(std::move(storage));
}

void share_parameters(const std::vector<at::Tensor>& parameters, const ProcessGroup& group,
                      const std::source_location& where) {
  if (group->getSize() == 1) return;
  const ShmBackend* const backend = ShmBackend::of(*group);
  const bool all_on_cpu = std::ranges::all_of(parameters, [](const at::Tensor& tensor) { return tensor.is_cpu(); });
  if (backend == nullptr || !all_on_cpu)
    throw UsageError(c10::str("DistributedDataParallel: share_parameters needs CPU parameters and ranks that share ",
                              "memory, but this group's backend is ", group->getBackendName(),
                              all_on_cpu ? "" : ", and a parameter is on another device"));
  const FlatLayout layout(parameters, 1);
  move_into(make_shared_memory("DistributedDataParallel", layout.bytes, group, where), layout, parameters,
            /*copies=*/group->getRank() == 0);
  barrier(group, {}, where);  // The values are there.
}

SharedGradients::SharedGradients(ProcessGroup group, std::vector<at::Tensor> parameters,
                                 const std::source_location& where)
    : group_(std::move(group)),
      where_(where),
      parameters_(std::move(parameters)),
      hidden_(parameters_.size()),
      offsets_(static_cast<std::size_t>(group_->getSize()), std::vector<std::int64_t>(parameters_.size())),
      own_(parameters_.size()) {
  for (const at::Tensor& parameter : parameters_) places_.push_back(parameter.const_data_ptr());
  if (group_->getSize() > 1) base_ = reinterpret_cast<std::uintptr_t>(ShmBackend::of(*group_)->memory()->base());
}

std::optional<SharedGradients::Change> SharedGradients::change_of_parameters() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].const_data_ptr() != places_[i]) return Change{i, "is no longer in shared memory"};
    // Before the first backward, values may be loaded.
    if (!versions_.empty() && parameters_[i]._version() != versions_[i]) return Change{i, "was written by the program"};
  }
  return std::nullopt;
}

void SharedGradients::note_loaded(std::size_t parameter) {
  if (!versions_.empty()) versions_[parameter] = static_cast<std::uint32_t>(parameters_[parameter]._version());
}

void SharedGradients::note_versions() {
  versions_.clear();
  for (const at::Tensor& parameter : parameters_) versions_.push_back(static_cast<std::uint32_t>(parameter._version()));
}

bool SharedGradients::restore() {
  bool can_be_added_to = true;
  if (!is_pending_) return can_be_added_to;
  for (std::size_t i = 0; i < hidden_.size(); ++i) {
    const at::Tensor hidden = std::exchange(hidden_[i].gradient, {});
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!hidden.defined() || !gradient.is_same(hidden_[i].stand_in)) continue;
    const bool is_unchanged = gradient._version() == hidden_[i].version;
    can_be_added_to &= !is_unchanged || !has_sums_;
    gradient = is_unchanged ? hidden : at::Tensor();
  }
  is_pending_ = false;
  has_sums_ = false;
  return can_be_added_to;
}

void SharedGradients::claim() {
  if (std::exchange(is_claimed_, true))
    throw UsageError(
        "ShardedOptimizer: the module with share_parameters has one already; pass all parameter groups to one");
}

bool SharedGradients::has_moved() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    std::int64_t now = 0;
    if (gradient.defined() && gradient.numel() > 0)
      now = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(gradient.const_data_ptr()) - base_);
    own_[i] = now;
  }
  // Not what it was at the last call: after an error no exchange() followed that one.
  return own_ != offsets_[static_cast<std::size_t>(group_->getRank())];
}

void SharedGradients::exchange() {
  offsets_ = gather_numbers(own_, group_, where_);
}

void SharedGradients::hide() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) continue;
    Hidden& hidden = hidden_[i];
    if (!hidden.stand_in.defined())
      hidden.stand_in = at::empty_strided(gradient.sizes(), gradient.strides(),
                                          gradient.options().device(at::kMeta).requires_grad(false));
    hidden.gradient = std::exchange(gradient, hidden.stand_in);
    hidden.version = hidden.stand_in._version();
  }
  is_pending_ = true;
  if (versions_.empty()) note_versions();
}

void SharedGradients::begin_use() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Hidden& hidden = hidden_[i];
    if (!hidden.gradient.defined()) continue;
    const at::Tensor& now = parameters_[i].grad();
    const bool is_same = now.is_same(hidden.stand_in);
    if (is_same && now._version() == hidden.version) continue;
    throw UsageError(c10::str(
        "ShardedOptimizer: the program ", is_same ? "changed" : "replaced", " the gradient of a parameter of shape ",
        hidden.stand_in.sizes(), " between backward() and step(); with share_parameters only the optimizer has the ",
        "gradients: use its clip_grad_norm_() and unscale_(), and call zero_grad() before backward()"));
  }
}

std::byte* SharedGradients::gradient(std::size_t parameter, int rank) const {
  const std::int64_t offset = offsets_[static_cast<std::size_t>(rank)][parameter];
  return offset == 0 ? nullptr : reinterpret_cast<std::byte*>(base_ + static_cast<std::uintptr_t>(offset));
}

void SharedGradients::consume() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!std::exchange(hidden_[i].gradient, {}).defined()) continue;
    parameters_[i].mutable_grad() = at::Tensor();
  }
  is_pending_ = false;
  has_sums_ = false;
  note_versions();
}

}  // namespace retinue
