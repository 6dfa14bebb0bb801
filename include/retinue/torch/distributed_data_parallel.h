#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/base/error.h"
#include "retinue/torch/process_group.h"
#include "retinue/torch/visit_tensors.h"

namespace retinue {

struct DistributedDataParallelOptions {
  /// Gradients are averaged in buckets of this many MiB, each as soon as backward has filled it.
  std::size_t bucket_cap_mb = 25;
  /// Set it when some parameters take no part in some forwards; costs a walk over the graph in each forward.
  bool find_unused_parameters = false;
  /// Buffers, such as batch norm's statistics, are those of rank 0 at the start of each forward.
  bool broadcast_buffers = true;
  /// Gradients live in the buckets in job memory, which saves a copy: a tensor taken from grad() is overwritten by the
  /// next backward, even after zero_grad(). Without effect for groups whose backend is not "shm".
  bool gradient_as_bucket_view = true;
  /// Before the first and each n-th forward after it whose gradients are averaged, the ranks' parameters are compared,
  /// and DataDivergence names the first that differs, and the ranks (divergence.h); 0: never. For groups of backend
  /// "shm". Costs a reading of all parameters each time.
  std::uint64_t check_divergence_every_n_steps = 0;
  /// Each forward with gradients, but for those in no_sync(), counts as a step of this rank, for `retinue top`
  /// (step_count.h). Of several models that are trained in one loop one should count, or none where the loop calls
  /// count_step() itself.
  bool count_steps = true;
};

/// What DistributedDataParallel does around a module's forward, whatever the module's type.
class DataParallelCore {
 public:
  /// `where` is the call site of its collectives.
  DataParallelCore(torch::nn::Module& module, ProcessGroup group, DistributedDataParallelOptions options,
                   std::source_location where);
  ~DataParallelCore();
  DataParallelCore(DataParallelCore&&) noexcept;
  DataParallelCore& operator=(DataParallelCore&&) noexcept;

  void before_forward();
  /// Whether after_forward() must see the outputs of this forward.
  bool needs_outputs() const;
  /// Prepares the backward that follows. The tensors are replaced by equal ones.
  void after_forward(const std::vector<at::Tensor*>& outputs);

  const ProcessGroup& group() const;
  bool set_gradient_sync(bool enabled);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Trains a module on all ranks of a group as one: each rank has its own batch, gradients are averaged in backward.
///
/// `Net` is a module, a module holder (TORCH_MODULE, torch::nn::Sequential) or a shared pointer to a module. The
/// constructor gives all ranks the parameters and buffers of rank 0. Make the optimizer from `ddp->parameters()`. All
/// ranks make the same number of forward and backward passes.
///
/// Blocking: the constructor, forward() (for buffers) and backward() wait for the other ranks, at most the group's
/// timeout. Threads: those that the module allows; one forward and backward at a time. Errors: UsageError for modules
/// without trainable parameters, with sparse gradients, or on another device than the group's; c10::Error when the
/// ranks' modules differ; PeerLost and others come out of forward() and backward().
template <typename Net>
class DistributedDataParallel {
  template <typename T>
  struct Unwrap {
    using Type = T;
    static std::shared_ptr<T> pointer(T net) { return std::make_shared<T>(std::move(net)); }
  };
  template <typename T>
  struct Unwrap<std::shared_ptr<T>> {
    using Type = T;
    static std::shared_ptr<T> pointer(std::shared_ptr<T> net) { return net; }
  };
  template <typename T>
  requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, T>
  struct Unwrap<T> {
    using Type = typename T::ContainedType;
    static std::shared_ptr<Type> pointer(const T& net) { return net.ptr(); }
  };

 public:
  using Module = typename Unwrap<Net>::Type;

  DistributedDataParallel(Net net, ProcessGroup group, DistributedDataParallelOptions options = {},
                          std::source_location where = std::source_location::current())
      : module_(Unwrap<Net>::pointer(std::move(net))), core_(*module_, std::move(group), options, where) {}

  template <typename... Inputs>
  auto forward(Inputs&&... inputs) {
    core_.before_forward();
    auto output = module_->forward(std::forward<Inputs>(inputs)...);
    std::vector<at::Tensor*> tensors;
    if (core_.needs_outputs()) {
      if constexpr (VisitableTensors<decltype(output)>)
        visit_tensors(output, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
      else
        throw UsageError(
            "DistributedDataParallel: find_unused_parameters must see the tensors in what forward() returns; "
            "declare visit_tensors() for its type");
    }
    core_.after_forward(tensors);
    return output;
  }
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  /// The wrapped module, for everything but training passes: parameters, modes, checkpoints.
  Module& module() const { return *module_; }
  const std::shared_ptr<Module>& ptr() const { return module_; }
  Module* operator->() const { return module_.get(); }

  const ProcessGroup& group() const { return core_.group(); }

  /// While it lives, forward and backward passes gather gradients on this rank only; the first pass after it averages
  /// them.
  class NoSync {
   public:
    explicit NoSync(DataParallelCore& core) : core_(core), before_(core.set_gradient_sync(false)) {}
    ~NoSync() { core_.set_gradient_sync(before_); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DataParallelCore& core_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(core_); }

 private:
  std::shared_ptr<Module> module_;
  DataParallelCore core_;
};

}  // namespace retinue
