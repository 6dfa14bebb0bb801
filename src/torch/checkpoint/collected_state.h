#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "retinue/torch/checkpoint.h"
#include "torch/checkpoint/manifest.h"

namespace retinue {

/// What this rank has of a saved tensor; undefined: nothing.
struct TensorSource {
  at::Tensor tensor;
  std::int64_t begin = 0;  ///< Which of the whole tensor's elements the first one is.
};

/// What one rank saves.
struct CollectedState {
  Manifest manifest;
  std::vector<TensorSource> sources;  ///< Of the manifest's tensors.

  /// Puts the sources in the order of the merged manifest.
  void rearrange(const Manifest& merged);
};

/// Errors: UsageError for what can't be saved.
CollectedState collect(std::int64_t step, const ProcessGroup& group, const CheckpointState& state);

struct ModelTensor {
  std::string name;
  at::Tensor tensor;
  bool is_buffer = false;
};
/// The parameters and buffers, as in Python's state_dict().
std::vector<ModelTensor> model_tensors(const torch::nn::Module& module);

/// This rank's random generators.
std::vector<at::Generator> random_generators(const CheckpointState& state);

/// The names that errors say.
std::string name_in_model(const std::string& name);
std::string name_in_optimizer(std::uint64_t parameter, const std::string& field);

}  // namespace retinue
