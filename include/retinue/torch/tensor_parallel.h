#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <iosfwd>
#include <source_location>

#include "retinue/torch/process_group.h"

/// Layers that are divided among the ranks of a group, after Megatron-LM's.
///
/// All ranks call with the same input and compute the same loss; gradients are those of this one loss, as if one
/// process had computed it with the undivided layer. Undivided inputs and results are the same on all ranks, and so are
/// gradients of undivided parameters.
///
/// Blocking: constructors, forward and backward wait for the other ranks, at most the group's timeout.
/// Threads: any, if all ranks make the same calls in the same order; of a backward, autograd's.
/// Errors: UsageError of constructors and of vocab_parallel_cross_entropy() on all ranks, if arguments are invalid or
/// differ between ranks; CollectiveMismatch, PeerLost and TimeoutError as in process_group.h, also out of backward.
/// After an error: after UsageError the group is usable.
namespace retinue {

// What the layers are made of, for layers of your own. `dim`: the dimension that is divided among the ranks; negative
// ones count from the last dimension.

/// Returns the tensor. Gradient: the sum of all ranks' gradients. For an input of which each rank computes another
/// part.
at::Tensor copy_to_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                std::source_location where = std::source_location::current());
/// Returns the sum of all ranks' tensors. Gradient: passed on.
at::Tensor reduce_from_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                    std::source_location where = std::source_location::current());
/// Returns this rank's part of the tensor. Gradient: all ranks' gradients, joined. Errors: UsageError, without waiting,
/// if the number of ranks doesn't divide the dimension.
at::Tensor scatter_to_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                   std::int64_t dim = -1,
                                                   std::source_location where = std::source_location::current());
/// Returns all ranks' parts, joined. Shape: parts are of one size. Gradient: this rank's part.
at::Tensor gather_from_tensor_model_parallel_region(const at::Tensor& tensor, const ProcessGroup& group,
                                                    std::int64_t dim = -1,
                                                    std::source_location where = std::source_location::current());

struct ColumnParallelLinearOptions {
  bool bias = true;           ///< Not used if the layer is made from a Linear.
  bool gather_output = true;  ///< Otherwise each rank returns its part of the output features.
};

/// torch::nn::Linear, with the output features divided among the ranks.
///
/// Shape: input [..., in_features], the same on all ranks; output [..., out_features], or with gather_output false
/// [..., out_features / ranks]. Parameters: `weight` [out_features / ranks, in_features], `bias` [out_features /
/// ranks].
class ColumnParallelLinearImpl : public torch::nn::Cloneable<ColumnParallelLinearImpl> {
 public:
  /// Makes the layer with the values that a Linear would have on rank 0. The number of ranks divides `out_features`.
  ColumnParallelLinearImpl(std::int64_t in_features, std::int64_t out_features, ProcessGroup group,
                           ColumnParallelLinearOptions options = {},
                           std::source_location where = std::source_location::current());
  /// Makes the layer from rank 0's `full`; on the other ranks only its sizes and type matter.
  ColumnParallelLinearImpl(const torch::nn::Linear& full, ProcessGroup group, ColumnParallelLinearOptions options = {},
                           std::source_location where = std::source_location::current());

  at::Tensor forward(const at::Tensor& input);
  /// Returns the undivided layer, detached, on all ranks: for checkpoints. All ranks call it.
  torch::nn::Linear to_linear(std::source_location where = std::source_location::current()) const;
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;
  at::Tensor bias;  ///< Undefined without bias.

 private:
  std::int64_t in_features_;
  std::int64_t out_features_;
  ProcessGroup group_;
  ColumnParallelLinearOptions options_;
  std::source_location where_;
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  bool bias = true;                ///< Not used if the layer is made from a Linear.
  bool input_is_parallel = false;  ///< The input is this rank's part, such as from a ColumnParallelLinear.
};

/// torch::nn::Linear, with the input features divided among the ranks.
///
/// Shape: input [..., in_features], or with input_is_parallel [..., in_features / ranks]; output [..., out_features],
/// the same on all ranks. Parameters: `weight` [out_features, in_features / ranks], and `bias` [out_features], which
/// all ranks have and compute the same gradient of.
class RowParallelLinearImpl : public torch::nn::Cloneable<RowParallelLinearImpl> {
 public:
  /// Makes the layer with the values that a Linear would have on rank 0. The number of ranks divides `in_features`.
  RowParallelLinearImpl(std::int64_t in_features, std::int64_t out_features, ProcessGroup group,
                        RowParallelLinearOptions options = {},
                        std::source_location where = std::source_location::current());
  /// Makes the layer from rank 0's `full`; on the other ranks only its sizes and type matter.
  RowParallelLinearImpl(const torch::nn::Linear& full, ProcessGroup group, RowParallelLinearOptions options = {},
                        std::source_location where = std::source_location::current());

  at::Tensor forward(const at::Tensor& input);
  /// Returns the undivided layer, detached, on all ranks: for checkpoints. All ranks call it.
  torch::nn::Linear to_linear(std::source_location where = std::source_location::current()) const;
  void reset() override;
  void pretty_print(std::ostream& stream) const override;

  at::Tensor weight;
  at::Tensor bias;  ///< Undefined without bias.

 private:
  std::int64_t in_features_;
  std::int64_t out_features_;
  ProcessGroup group_;
  RowParallelLinearOptions options_;
  std::source_location where_;
};
TORCH_MODULE(RowParallelLinear);

struct VocabParallelCrossEntropyOptions {
  enum class Reduction : std::uint8_t { kMean, kSum, kNone };
  Reduction reduction = Reduction::kMean;  ///< kMean: over targets that aren't `ignore_index`.
  std::int64_t ignore_index = -100;        ///< Such targets have no loss and no gradient.
};

/// Returns torch.nn.functional.cross_entropy of logits whose classes are divided among the ranks, the same on all
/// ranks.
///
/// Shape: `logits` [..., classes of this rank], where ranks may have different numbers of classes; `target` [...] of
/// type long, the same on all ranks, with classes counted over all ranks. The loss is a scalar, with kNone [...].
/// Blocking: forward; backward needs no other rank. Errors: also UsageError of a backward with create_graph. Cost:
/// three collectives of at most two numbers per target; no rank has more than its own classes.
at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& target, const ProcessGroup& group,
                                        VocabParallelCrossEntropyOptions options = {},
                                        std::source_location where = std::source_location::current());

}  // namespace retinue
