#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "torch/checkpoint/manifest.h"

namespace retinue {

/// The file's contents as Python sees them.
struct PickledView {
  std::string pickle;
  std::vector<at::Tensor> small;  ///< The tensors that follow the manifest's, in records of their own.
};

/// A dict of "step", "world_size", "model", "optimizer", "sampler" and "random_generators". The n-th of the manifest's
/// tensors is the record data/n, and the small ones continue.
PickledView make_pickled_view(const Manifest& manifest);

}  // namespace retinue
