#pragma once

#include <functional>
#include <vector>

#include "retinue/torch/distributed_data_parallel.h"

namespace retinue {

/// A DistributedDataParallel of any module.
class JoinedModel {
 public:
  template <typename Net>
  JoinedModel(DistributedDataParallel<Net>* model) : core_(&model->core()) {}  // NOLINT: to be written as &model.

  DataParallelCore& core() const { return *core_; }

 private:
  DataParallelCore* core_;
};

struct JoinOptions {
  /// The models that `body` trains. In each step it makes one averaging backward of each, in this order.
  std::vector<JoinedModel> models;
  /// true: a rank without inputs counts as zeros in averages. false: averages are over the ranks that have inputs.
  bool divide_by_initial_world_size = true;
  /// When one rank has no more inputs, all ranks throw UsageError.
  bool throw_on_early_termination = false;
};

/// Runs a training loop in which ranks have different numbers of inputs: PyTorch's Join. A rank whose `body` has ended
/// takes part in the averagings of the others, without gradients of its own, until all have ended. Then all ranks get
/// the parameters and buffers of the last rank.
///
/// In `body`, each averaging backward begins with one more small collective, and there are no divergence checks. Other
/// collectives that not all ranks make in equal numbers must not be in it, such as those of ShardedOptimizer.
///
/// Blocking: until all ranks have ended their `body`. Errors: what `body` throws; then the other ranks get PeerLost
/// when this one ends. UsageError for share_parameters, for no model, and see throw_on_early_termination.
void join(const JoinOptions& options, const std::function<void()>& body);

}  // namespace retinue
