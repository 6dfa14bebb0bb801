#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "retinue/torch/process_group.h"

namespace retinue {

/// What a reducer averages, and how.
struct GradientReducerOptions {
  std::vector<at::Tensor> parameters;  ///< Each once, all with gradients, in the same order on all ranks.
  std::vector<std::string> names;      ///< Of the parameters, for messages.
  std::size_t bucket_cap_mb = 25;
  bool find_unused_parameters = false;
  bool gradient_as_bucket_view = true;
};

/// The seam of DistributedDataParallel: averages gradients over the ranks of a group while backward computes them.
///
/// One backward between two calls of prepare_forward() is averaged; backward returns when all gradients are averages.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;

  /// Before a forward whose backward shall be averaged. Blocking: may exchange the buckets' order with the other ranks.
  virtual void prepare_forward() = 0;
  /// After that forward. `outputs` matter with find_unused_parameters only: what they do not depend on is unused.
  virtual void prepare_backward(const std::vector<at::Tensor>& outputs) = 0;
};

/// c10d's Reducer, which PyTorch's own DDP uses; with ranks of one host its buckets are in job memory.
std::unique_ptr<GradientReducer> make_c10d_reducer(const ProcessGroup& group, GradientReducerOptions options);

}  // namespace retinue
