#pragma once

#include <ATen/core/Tensor.h>
#include <sys/types.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"
#include "retinue/torch/process_group.h"
#include "torch/libtorch_versions.h"
#include "torch/training/gradient_buckets.h"
#include "torch/training/shared_parameters.h"

namespace retinue {

struct GradientReducerOptions {
  struct Parameter {
    std::string name;
    at::Tensor tensor;
  };
  std::vector<Parameter> parameters;  ///< Each once, in the same order on all ranks, also those without gradients.
  /// What the module has in place of these, if others were registered since. Asked in each forward and each backward.
  std::function<std::optional<std::vector<Parameter>>()> changed_parameters;
  std::size_t bucket_cap_mb;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool check_gradients = false;
  ReducerKind reducer = ReducerKind::kAuto;
  std::shared_ptr<GradientHook> hook = nullptr;
  bool shares_parameters = false;
  /// Called when backward is done and its gradients are not averaged yet;
  std::function<void(bool is_shadow)> before;
  std::function<void()> after;  ///< when they are.
  std::source_location where;
};

/// Averages gradients over the ranks of a group at the end of each backward that reaches the parameters, however the
/// forward before it was called: averaging a sum of which parts are averages already is right, too.
///
/// A parameter that several reducers have is averaged by the one that was made first. Sparse gradients stay sparse.
///
/// Errors come out of backward: UsageError, on all ranks, where gradients would be lost.
class GradientReducer {
 public:
  GradientReducer(ProcessGroup group, GradientReducerOptions options);
  ~GradientReducer();

  /// Whether gradients are averaged; returns what was so before.
  bool set_sync(bool enabled);
  /// A backward is going to follow; in training mode one on all ranks.
  void note_forward(bool is_training);
  /// The forward that was noted last ended with an exception.
  void forget_forward(bool is_training);

  /// See join().
  void begin_join(const JoinMode& mode);
  void end_join();
  bool is_in_join() const { return join_.has_value(); }
  /// Takes part in the other ranks' next averaging. False: none of them goes on, and nothing was averaged.
  bool shadow_backward();
  /// The rank whose buffers count: the first one that has inputs.
  int first_that_goes_on() const;
  /// Blocking: the rank that ended last.
  int last_in_join() const;

  /// All ranks gave these the same values, and are going to wait for each other. It is no misuse of shared parameters.
  static void note_loaded(const std::vector<at::Tensor>& parameters);

  /// Null unless parameters are shared.
  const std::shared_ptr<SharedGradients>& shared_gradients() const { return shared_; }

 private:
  class AfterGradient;
  struct Member {
    std::string name;
    at::Tensor parameter;
    libtorch::NodePtr accumulator = {};  ///< Null if it required no gradient.
    std::uintptr_t after_hook = 0;
    unsigned before_hook = 0;
    bool is_hooked = false;
    std::size_t place = 0;  ///< Among those that are averaged.
  };
  /// One backward, and those that ran inside it, such as the ones of a checkpointed part of the module. It ends, by an
  /// error, too, with autograd's tasks for it, whose callbacks hold it.
  struct Pass {
    std::thread::id thread = {};
    std::set<int> tasks = {};
    int open_tasks = 0;
    std::vector<char> arrived = {};   ///< By place.
    std::vector<char> left = {};      ///< By place: whether another reducer, of a part of the module, averages it.
    std::set<std::size_t> lost = {};  ///< Members whose gradients are added where no hook is.
    std::string problem = {};
    bool follows_forward = false;
    int forwards = 0;
    bool is_shadow = false;  ///< No backward: this rank's part in the others', in a join().
  };
  struct Join {
    JoinMode mode;
    std::vector<char> goes_on;  ///< By rank.
    std::int64_t shadowed = 0;  ///< Passes.
  };

  /// What the ranks average.
  struct Agreed {
    std::vector<char> dense;                                        ///< By place.
    std::vector<std::pair<std::size_t, std::int64_t>> sparse = {};  ///< Places, and their sparse dimensions.
    bool has_moved = false;                                         ///< On some rank: see SharedGradients.
    bool is_first_of_static = false;
    std::vector<std::size_t> partly_lacking = {};  ///< In that case: places without a gradient on some ranks.
  };

  void add_hooks(std::size_t index);
  void remove_hooks();
  void before_gradient(const Member& member);
  void after_gradient(const Member& member, bool is_defined);
  static void copy_gradient(const at::Tensor& parameter);
  void refuse_sums();
  Pass& current_pass();
  void begin_task(const std::shared_ptr<Pass>& pass, int task);
  void end_task(const std::shared_ptr<Pass>& pass);
  std::vector<char> left_to_others(std::string& problem) const;
  void finish(Pass& pass);
  std::string change_of_module();
  void remove_hooks_of_added();
  std::string problem_of(const Pass& pass);
  std::string problem_of_gradient(const Member& member) const;
  std::string difference_from_static_graph(const Pass& pass) const;
  Agreed agree(const Pass& pass);
  void average(const Agreed& agreed);
  void tell_who_goes_on(bool goes_on);
  void scale_for_join(const Agreed& agreed);
  bool is_sparse(std::size_t place) const;
  void agree_on_sparse(Agreed& agreed) const;
  void average_sparse(std::size_t place, std::int64_t sparse_dimensions);
  [[noreturn]] void throw_on_all(const std::string& problem) const;

  const ProcessGroup group_;
  const pid_t process_;
  GradientReducerOptions options_;
  std::vector<Member> members_;
  std::vector<std::size_t> averaged_;                   ///< Members by place.
  std::vector<std::pair<at::Tensor, unsigned>> added_;  ///< Parameters that are no members, with their hooks.
  std::unique_ptr<GradientBuckets> buckets_;
  std::shared_ptr<SharedGradients> shared_;
  /// With static_graph, after the first backward, by place: which gradients come here, and which on any rank.
  std::vector<char> static_arrived_;
  std::vector<char> static_dense_;
  std::optional<Join> join_;
  bool syncs_ = true;
  bool follows_forward_ = false;
  int forwards_ = 0;  ///< In training mode, since the last averaging.

  std::mutex mutex_;  ///< Guards what hooks change: those of several devices run on several threads.
  std::weak_ptr<Pass> pass_;
  std::shared_ptr<Pass> suspended_;  ///< The pass, while it waits in another backward for gradients that it lacks.
  std::vector<char> changed_;        ///< By place: whether a gradient came since the last averaging.
};

}  // namespace retinue
