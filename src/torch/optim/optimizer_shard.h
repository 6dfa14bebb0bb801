#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "torch/optim/optimizer_slices.h"
#include "torch/optim/optimizer_update.h"

namespace retinue {

/// The elements that one rank updates, in pieces that fit into a core's cache together with all that their update reads
/// and writes.
class OptimizerShard {
 public:
  /// Where a rank's gradient of a parameter begins, in the order of its memory; null: it has none.
  using GradientOf = std::function<std::byte*(std::size_t parameter, int rank)>;

  struct Slice {
    ElementRange range;
    std::size_t group;  ///< Of parameters.
    ElementState state = {};
    at::Tensor step = {};   ///< float32: `state.step` for kernels.
    bool is_first = false;  ///< In this step, SGD has no momentum yet.
  };

  /// `ranks`: those whose gradients are summed; `rank`: whose gradients may be overwritten. `group_of`: by parameter.
  OptimizerShard(std::vector<at::Tensor> parameters, const std::vector<ElementRange>& ranges,
                 const std::vector<std::size_t>& group_of, OptimizerUpdate update, int rank, int ranks);

  const std::vector<Slice>& slices() const { return slices_; }
  /// Gives a slice another state.
  void load(std::size_t slice, ElementState state);

  /// Sums the gradients into those of `rank`.
  void sum(const GradientOf& gradient_of);
  /// Of the last sum(): for all pieces that have a gradient.
  void for_each_sum(const std::function<void(const at::Tensor& sum)>& body) const;

  struct Step {
    bool has_sums = false;                                    ///< The last sum() was of these gradients.
    std::optional<at::Tensor> gradient_scale = std::nullopt;  ///< See OptimizerUpdate.
    UndoLog* undo = nullptr;
  };
  /// Updates all that has a gradient. It also sums, where that is not done.
  void step(const GradientOf& gradient_of, const std::vector<torch::optim::OptimizerParamGroup>& groups,
            const Step& step);

 private:
  struct Seen {
    const std::byte* data = nullptr;
    at::Tensor view = {};
  };
  struct Piece {
    std::size_t slice;
    ElementRange range;
    at::Tensor values;
    at::Tensor scratch;                              ///< For a sum.
    std::vector<Seen> seen = {};                     ///< By rank: the view that was made last.
    at::Tensor sum = {};                             ///< After sum(), if there is a gradient.
    at::Tensor first = {}, second = {}, third = {};  ///< Of the slice's state.
  };
  /// Pieces that are updated by one call; all are of one group and type.
  using Batch = std::vector<Piece>;

  void add_piece(std::size_t slice, const ElementRange& range);
  at::Tensor view_of(Piece& piece, int rank, std::byte* gradient);
  at::Tensor sum_of(Piece& piece, const GradientOf& gradient_of, bool in_place);
  void collect(Piece& piece, const at::Tensor& gradient, const torch::optim::OptimizerOptions& options);

  std::vector<at::Tensor> parameters_;
  OptimizerUpdate update_;
  int rank_;
  int ranks_;
  std::vector<Slice> slices_;
  std::vector<Batch> batches_;
  std::int64_t batch_elements_ = 0;  ///< Of the last batch.
  at::Tensor scratch_;               ///< Bytes, for the sums of one batch.
  ElementLists lists_, first_lists_;
};

}  // namespace retinue
