#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "torch/checkpoint/collected_state.h"
#include "torch/checkpoint/division.h"

namespace retinue {

/// Bytes to write, as they are in the file.
struct BytesToWrite {
  RecordPart part;
  const char* data = nullptr;
};

/// The bytes of a rank's parts, in memory that the next snapshot uses again.
class Snapshot {
 public:
  /// Copies the parts, also from other devices.
  void copy(const std::vector<RecordPart>& parts, const CollectedState& state);
  /// Refers to the tensors' own memory where that is possible.
  void refer(const std::vector<RecordPart>& parts, const CollectedState& state);

  /// Lets the tensors go that it refers to.
  void forget() { held_.clear(); }

  std::vector<BytesToWrite>& bytes() { return bytes_; }

 private:
  at::Tensor memory_;
  std::vector<BytesToWrite> bytes_;
  std::vector<at::Tensor> held_;
};

}  // namespace retinue
