#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <vector>

#include "torch/training/shared_parameters.h"

namespace retinue {

/// A range of a parameter's elements, in the order of its memory.
struct ElementRange {
  std::size_t parameter;
  std::int64_t begin;
  std::int64_t end;
};

/// The elements that lie in the `rank`-th of `ranks` equal slices of a layout, in their order.
std::vector<ElementRange> slice_of(const FlatLayout& layout, const std::vector<at::Tensor>& parameters, int rank,
                                   int ranks);

/// Elements of a dense tensor in the order of its memory. Shape: one dimension.
at::Tensor elements_of(const at::Tensor& tensor, std::int64_t begin, std::int64_t end);

/// The values that shared parameters had before a step, in job memory, so that every rank can undo a step that another
/// one did not complete.
class UndoLog {
 public:
  /// Blocking: all ranks call it. `layout`: of the parameters, for as many slices as there are ranks.
  UndoLog(const std::vector<at::Tensor>& parameters, const FlatLayout& layout, const ProcessGroup& group,
          const std::source_location& where = std::source_location::current());

  /// This rank begins a step.
  void begin_step();
  /// Keeps elements that are going to change; in the order of slice_of().
  void keep(const ElementRange& range, const at::Tensor& values);
  /// This rank has made all its changes.
  void end_step();
  /// Gives the parameters what they had before this step, unless the `lost` ranks, or all if none is known, have made
  /// all their changes, and no rank undid it. All ranks that go on call it. Blocking: until these write no more, at
  /// most 5 s.
  void undo(const std::vector<int>& lost) const;

 private:
  struct Progress {
    std::uint64_t begun = 0;  ///< Steps.
    std::uint64_t ended = 0;
    std::uint64_t failed = 0;  ///< The number of the step that this rank ended by an error.
    std::uint64_t undone = 0;  ///< The number of the step that this rank undid.
    std::uint64_t kept = 0;    ///< Elements, in the step that goes on.
  };
  Progress& progress_of(int rank) const;

  std::vector<at::Tensor> parameters_;
  FlatLayout layout_;
  int rank_;
  int ranks_;
  std::vector<at::Tensor> kept_;  ///< By parameter, all its elements.
  at::Tensor progress_;
};

}  // namespace retinue
