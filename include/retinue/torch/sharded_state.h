#pragma once

#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace retinue {

/// Elements [begin, end) of an optimizer's parameter, in the order of their indices.
struct ParameterSlice {
  std::size_t parameter = 0;  ///< Its number as in Python's state_dict(): over all groups, from 0.
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// An interface of optimizers whose state is divided over the ranks. A Checkpoint writes each rank's part, and the file
/// holds the whole state, as if it had not been divided: it can be loaded with another number of ranks, and without
/// division.
///
/// A class that derives from torch::optim::Optimizer also derives from this. Its own param_groups() list all parameters
/// as a whole, the same on all ranks, and have the options. local_optimizer() makes the steps of this rank's slices.
class ShardedState {
 public:
  virtual ~ShardedState() = default;

  /// Returns this rank's optimizer, such as torch::optim::AdamW, with as many groups as the whole. Each of its
  /// parameters is a slice. A Checkpoint sets the options of its groups, too.
  virtual torch::optim::Optimizer& local_optimizer() = 0;
  /// Returns the slice that each parameter of local_optimizer() is, in their order, over all groups. The slices of all
  /// ranks together are all parameters, each element once.
  virtual std::vector<ParameterSlice> slices() const = 0;
};

}  // namespace retinue
