#pragma once

#include <string>
#include <vector>

#include "retinue/torch/checkpoint.h"
#include "torch/checkpoint/checkpoint_reader.h"
#include "torch/checkpoint/optimizer_kind.h"

namespace retinue {

/// Sets a rank's objects to what a file has.
class StateRestorer {
 public:
  StateRestorer(const CheckpointReader& reader, const CheckpointState& state, int rank)
      : reader_(reader), saved_(reader.manifest()), state_(state), rank_(rank) {}

  /// Changes nothing. Errors: Error, which names the file and all that doesn't fit.
  void check();
  /// Errors: SystemError.
  void restore();

 private:
  /// A parameter of the optimizer that has the state of a part of a saved one.
  struct Slice {
    at::Tensor parameter;
    std::size_t index;
    std::int64_t begin;
  };

  void check_model();
  void check_optimizer();
  void check_groups();
  void check_states();
  void check_slices();
  void check_sampler();
  void restore_optimizer();
  void restore_options(torch::optim::Optimizer& optimizer) const;
  void restore_state(const Slice& slice) const;
  void restore_generators() const;
  std::vector<Slice> slices() const;
  void add_problem(const std::string& problem);

  const CheckpointReader& reader_;
  const Manifest& saved_;
  const CheckpointState& state_;
  int rank_;
  torch::optim::Optimizer* local_ = nullptr;  ///< Whose state is restored.
  const OptimizerKind* kind_ = nullptr;
  std::vector<at::Tensor> parameters_;  ///< Of the whole optimizer.
  std::vector<std::string> problems_;
};

}  // namespace retinue
