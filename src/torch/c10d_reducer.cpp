#include <torch/csrc/autograd/engine.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <utility>

#include "torch/gradient_reducer.h"
#include "torch/shared_storage.h"
#include "torch/shm_backend.h"

// The constructor's parameters and the order of calls belong to this version alone.
static_assert(TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR == 13, "Retinue needs LibTorch 2.13");

namespace retinue {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
const CallSite kInBackward{"DistributedDataParallel's backward", 0};

using BucketIndices = std::vector<std::vector<std::size_t>>;

/// c10d's buckets, in the order in which backward probably fills them.
BucketIndices assign_buckets(const GradientReducerOptions& options) {
  // As PyTorch does: one bucket in the first pass, after which the Reducer knows the real order and makes better ones.
  std::vector<std::size_t> limits{SIZE_MAX};
  if (options.find_unused_parameters) limits = {c10d::kDefaultFirstBucketBytes, options.bucket_cap_mb * kMiB};
  BucketIndices buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(
      options.parameters, limits, std::vector<bool>(options.parameters.size(), false)));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::int64_t first_bucket_bytes(const GradientReducerOptions& options) {
  const auto cap = static_cast<std::int64_t>(options.bucket_cap_mb * kMiB);
  return cap == c10d::kDefaultBucketBytesCap ? c10d::kDefaultFirstBucketBytes : cap;
}

std::shared_ptr<c10d::Reducer> make_reducer(const ProcessGroup& group, const GradientReducerOptions& options) {
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t i = 0; i < options.names.size(); ++i) names.emplace(i, options.names[i]);
  return std::make_shared<c10d::Reducer>(
      options.parameters, assign_buckets(options), group, std::vector<bool>(options.parameters.size(), false),
      static_cast<std::int64_t>(options.bucket_cap_mb * kMiB), options.find_unused_parameters,
      options.gradient_as_bucket_view, std::move(names), first_bucket_bytes(options),
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<std::int64_t>{});
}

/// Turns gradients that are views of buckets into plain tensors of the same memory: Optimizer::zero_grad() detaches
/// gradients in place, which autograd refuses for views.
void detach_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (gradient.defined() && gradient.is_view()) gradient = gradient.detach();
  }
}

/// Averages the buckets in one pass each, where they lie, when the last one is full: the ranks then wait for each other
/// once in a backward, not once in each bucket, where now the one is late and now the other. Nothing is lost by it: the
/// averaging is done by the ranks' own threads, which have gradients to compute until then.
class AverageInPlace final : public c10d::CommHookInterface {
 public:
  AverageInPlace(ShmBackend& backend, std::vector<at::Tensor> parameters)
      : backend_(backend), parameters_(std::move(parameters)) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    auto done = c10::make_intrusive<c10::ivalue::Future>(c10::TensorType::get());
    full_.push_back({bucket.getBufferRef(), done});
    if (!bucket.isLast()) return done;
    detach_when_finished();
    for (const FullBucket& full : std::exchange(full_, {})) {
      backend_.all_reduce(full.buffer, c10d::ReduceOp::AVG, {.site = kInBackward});
      full.done->markCompleted(full.buffer);
    }
    return done;
  }

  /// Drops what a backward that failed half-way left behind.
  void forget() { full_.clear(); }

  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  /// The Reducer queues its own callback, which writes the gradients, after this hook returned: ours must come later.
  void detach_when_finished() {
    auto& engine = torch::autograd::Engine::get_default_engine();
    engine.queue_callback([this, &engine] { engine.queue_callback([this] { detach_gradients(parameters_); }); });
  }

  struct FullBucket {
    at::Tensor buffer;
    c10::intrusive_ptr<c10::ivalue::Future> done;
  };

  ShmBackend& backend_;
  std::vector<at::Tensor> parameters_;
  std::vector<FullBucket> full_;  ///< Of this backward, in the order of the buckets, which is the same on all ranks.
};

/// Where all gradients lie on the CPU, of ranks that share memory; else null, and the Reducer asks the group.
ShmBackend* backend_of(const ProcessGroup& group, const std::vector<at::Tensor>& parameters) {
  const bool all_on_cpu = std::all_of(parameters.begin(), parameters.end(),
                                      [](const at::Tensor& parameter) { return parameter.device().is_cpu(); });
  return all_on_cpu ? ShmBackend::of(*group) : nullptr;
}

class C10dReducer final : public GradientReducer {
 public:
  C10dReducer(const ProcessGroup& group, GradientReducerOptions options)
      : parameters_(options.parameters),
        reducer_(make_reducer(group, options)),
        logger_(std::make_shared<c10d::Logger>(reducer_)) {
    reducer_->set_logger(logger_);
    ShmBackend* backend = backend_of(group, parameters_);
    if (backend == nullptr) return;
    memory_ = backend->memory();
    move_buckets();
    auto hook = std::make_unique<AverageInPlace>(*backend, parameters_);
    hook_ = hook.get();
    reducer_->register_comm_hook(std::move(hook));
  }

  void prepare_forward() override {
    reducer_->prepare_for_forward();
    if (reducer_->rebuild_buckets() && memory_) move_buckets();
  }

  void prepare_backward(const std::vector<at::Tensor>& outputs) override {
    if (hook_ != nullptr) hook_->forget();
    reducer_->prepare_for_backward(outputs);
  }

 private:
  /// Moves the storages under the buckets' tensors into job memory; the tensors and their views do not notice.
  void move_buckets() {
    for (const c10d::GradBucket& bucket : reducer_->get_grad_buckets(/*return_zero_tensors=*/false)) {
      const c10::Storage& storage = bucket.getBuffer().storage();
      c10::DataPtr shared = allocate_shared(memory_, storage.nbytes());
      if (storage.nbytes() > 0) std::memcpy(shared.get(), storage.data(), storage.nbytes());
      storage.set_data_ptr_noswap(std::move(shared));
    }
    detach_gradients(parameters_);  // Gradients that were there when the buckets were made became views of them.
  }

  std::vector<at::Tensor> parameters_;
  std::shared_ptr<JobMemory> memory_;  ///< Null when the Reducer asks the group.
  std::shared_ptr<c10d::Reducer> reducer_;
  AverageInPlace* hook_ = nullptr;  ///< Owned by the Reducer.
  /// The Reducer takes its presence for granted when it finds that the unused parameters changed.
  std::shared_ptr<c10d::Logger> logger_;
};

}  // namespace

std::unique_ptr<GradientReducer> make_c10d_reducer(const ProcessGroup& group, GradientReducerOptions options) {
  // AverageInPlace makes it usable.
  if (backend_of(group, options.parameters) == nullptr) options.gradient_as_bucket_view = false;
  return std::make_unique<C10dReducer>(group, std::move(options));
}

}  // namespace retinue
