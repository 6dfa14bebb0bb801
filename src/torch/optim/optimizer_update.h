#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "retinue/torch/sharded_optimizer.h"

namespace retinue {

/// What an optimizer remembers of some elements; undefined tensors before their first update.
struct ElementState {
  std::int64_t step = 0;
  at::Tensor first = {};   ///< SGD's momentum; Adam's mean of gradients,
  at::Tensor second = {};  ///< mean of their squares,
  at::Tensor third = {};   ///< and, with amsgrad, its maximum.
};

/// Elements of several parameters that are updated together. Shape: lists of one length, of tensors that fit together.
struct ElementLists {
  std::vector<at::Tensor> values = {};
  std::vector<at::Tensor> gradients = {};
  std::vector<at::Tensor> first = {};
  std::vector<at::Tensor> second = {};
  std::vector<at::Tensor> third = {};
  std::vector<at::Tensor> steps = {};  ///< float32, of one element: how many updates there were, with this one.

  void clear();
};

/// One of the algorithms, by LibTorch's fused kernels.
class OptimizerUpdate {
 public:
  using Algorithm = ShardedOptimizerAlgorithm;

  explicit OptimizerUpdate(Algorithm algorithm) : algorithm_(algorithm) {}

  /// Makes what is missing for elements like `values`. Returns whether it was SGD's momentum.
  bool prepare(ElementState& state, const at::Tensor& values, const torch::optim::OptimizerOptions& options) const;
  /// `is_first`: SGD has no momentum of them yet. `gradient_scale`: what gradients are divided by, of one float32.
  void update(const ElementLists& lists, const torch::optim::OptimizerOptions& options, bool is_first,
              const std::optional<at::Tensor>& gradient_scale) const;

  /// LibTorch's optimizer, for groups that have options.
  std::unique_ptr<torch::optim::Optimizer> make_optimizer(std::vector<torch::optim::OptimizerParamGroup> groups) const;
  /// LibTorch's object for the state, with the same tensors; and back.
  std::unique_ptr<torch::optim::OptimizerParamState> wrap(const ElementState& state) const;
  ElementState unwrap(const torch::optim::OptimizerParamState& state) const;
  /// An object of that kind without contents.
  std::unique_ptr<torch::optim::OptimizerParamState> empty_state() const { return wrap({}); }

 private:
  Algorithm algorithm_;
};

}  // namespace retinue
