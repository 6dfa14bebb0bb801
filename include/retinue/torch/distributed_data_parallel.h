#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "retinue/torch/gradient_hooks.h"
#include "retinue/torch/process_group.h"

namespace retinue {

class SharedGradients;

/// How DistributedDataParallel averages.
enum class ReducerKind : std::uint8_t {
  kAuto,       ///< kJobMemory for CPU parameters of ranks that share memory, otherwise kC10d.
  kJobMemory,  ///< Gradients are made in job memory, and averaged in place. Errors: UsageError where ranks share none.
  kC10d,       ///< By c10d's collectives, in buckets, each as soon as it is full.
};

struct DistributedDataParallelOptions {
  /// With gloo and NCCL, gradients are averaged in buckets of this many MiB, each as soon as backward has filled it.
  /// Ranks that share memory average all gradients in place, when the last one is there.
  std::size_t bucket_cap_mb = 25;
  /// Must be set if some parameters are unused in some backward passes; otherwise that is an error. Gradients are then
  /// averaged after backward has computed all of them, and those that no rank computed are left unchanged.
  bool find_unused_parameters = false;
  /// Sets buffers, such as batch norm's statistics, to rank 0's at the end of each backward that averages.
  bool broadcast_buffers = true;
  /// Before the first and each n-th averaging after it, the ranks' parameters are compared; DataDivergence names the
  /// first one that differs, and the ranks (divergence.h). 0: never. For groups of Retinue's backends. Costs a read of
  /// all parameters each time.
  std::uint64_t check_divergence_every_n_steps = 0;
  /// Counts each backward that averages as a step of this rank, for `retinue top` (step_count.h). If one loop trains
  /// several models, one should count, or none if the loop calls count_step() itself.
  bool count_steps = true;
  ReducerKind reducer = ReducerKind::kAuto;
  /// false: the constructor neither compares the ranks' modules nor copies rank 0's values; they are equal already.
  bool init_sync = true;
  /// All backwards reach the same parameters as the first one, which may be fewer than all. Otherwise that is an error.
  /// Unlike find_unused_parameters it costs nothing from the second backward on.
  bool static_graph = false;
  /// A NaN in a gradient is an error, which names the parameter and the rank. Costs a read of all gradients.
  bool check_gradients = false;
  /// Parameters and buffers, by name, that are each rank's own: neither compared, copied nor averaged.
  std::vector<std::string> parameters_to_ignore = {};
  /// Averages in its own way, for instance Bf16Compress (gradient_hooks.h). Not with share_parameters.
  std::shared_ptr<GradientHook> hook = nullptr;
  /// The ranks have one copy of the parameters, in job memory, which a ShardedOptimizer writes, and nothing else: it
  /// also averages the gradients (sharded_optimizer.h). Until its step(), grad() of a parameter has no values. For CPU
  /// parameters of ranks that share memory.
  bool share_parameters = false;
};

/// JoinOptions for one model (join.h).
struct JoinMode {
  bool divides_by_all = true;
  bool throws = false;
};

/// The part of DistributedDataParallel that is independent of the module's type.
class DataParallelCore {
 public:
  using NamedParameters = torch::OrderedDict<std::string, at::Tensor>;

  /// Makes the core; `where` is the call site of its collectives.
  DataParallelCore(torch::nn::Module& module, ProcessGroup group, DistributedDataParallelOptions options,
                   std::source_location where);
  ~DataParallelCore();
  DataParallelCore(DataParallelCore&&) noexcept;
  DataParallelCore& operator=(DataParallelCore&&) noexcept;

  void before_forward();
  void forward_failed();
  const ProcessGroup& group() const;
  NamedParameters named_parameters() const;
  bool set_gradient_sync(bool enabled);
  /// Null without share_parameters.
  std::shared_ptr<SharedGradients> shared_gradients() const;

  // For join().
  void begin_join(const JoinMode& mode);
  void end_join();
  bool shadow_backward();
  void copy_state_of_last();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A wrapper that trains a module on all ranks of a group as one: each rank has its own batch, and backward averages
/// the gradients.
///
/// `Net` is a module, a module holder (TORCH_MODULE, torch::nn::Sequential) or a shared pointer to a module. The
/// constructor gives all ranks the parameters and buffers of rank 0. Make the optimizer from `ddp.parameters()`. Each
/// backward that reaches a parameter is averaged, whether its graph is from `model(x)`, `model->forward(x)` or another
/// function of the module, also the second backward of a retained graph. A backward of one rank alone must be in
/// no_sync(). All ranks therefore make the same forwards and backwards in the same order outside of no_sync(). A saved
/// gradient keeps its value when the parameter gets a new one, as without DistributedDataParallel. Sparse gradients, of
/// embeddings, stay sparse. A part of the module may be wrapped too, with the same group: each gradient is averaged
/// once.
///
/// Blocking: the constructor and backward() wait for the other ranks, at most the group's timeout. Threads: as the
/// module allows; one backward at a time. Errors of the constructor: UsageError for modules without trainable
/// parameters, or on another device than the group's; also, on all ranks, if their modules differ: it names the first
/// parameter or buffer whose name, type, shape, strides or requires_grad differ, and the ranks. Errors of backward():
/// UsageError on all ranks, also in a world of one, if on one rank a parameter got no gradient (see
/// find_unused_parameters), was converted, made to require gradients, added to the module or removed from it after the
/// constructor, or has a sparse gradient on some ranks and a dense one on others; or if the ranks called forward() in
/// training mode unequally often since the last backward, as where one of them skipped a backward; PeerLost and other
/// errors of the collectives. torch::autograd::grad() of parameters throws UsageError outside of no_sync(). After an
/// error: gradients are unspecified; after UsageError the group is usable. Cost: one small collective and the
/// averaging; memory for each gradient, in job memory if ranks share it. Backward makes the larger gradients there, so
/// that only small ones are copied.
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
    try {
      return module_->forward(std::forward<Inputs>(inputs)...);
    } catch (...) {
      core_.forward_failed();
      throw;
    }
  }
  template <typename... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  /// Returns the wrapped module, for its parameters, modes, checkpoints and other functions.
  Module& module() const { return *module_; }
  const std::shared_ptr<Module>& ptr() const { return module_; }
  Module* operator->() const { return module_.get(); }

  /// Returns the module's parameters, each once, for optimizers and clipping. Module::parameters() lists one that
  /// several modules share several times, and an optimizer would step it as often.
  std::vector<at::Tensor> parameters() const { return core_.named_parameters().values(); }
  torch::OrderedDict<std::string, at::Tensor> named_parameters() const { return core_.named_parameters(); }

  const ProcessGroup& group() const { return core_.group(); }
  /// Returns what doesn't depend on the module's type, for ShardedOptimizer.
  DataParallelCore& core() { return core_; }

  /// A guard: during its lifetime, backward passes accumulate gradients on this rank only. The first one after it
  /// averages them.
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
