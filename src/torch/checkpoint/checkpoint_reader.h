#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "torch/checkpoint/checkpoint_file.h"
#include "torch/checkpoint/division.h"
#include "torch/checkpoint/manifest.h"

namespace retinue {

/// A file that a Checkpoint has written. Errors: SystemError; Error if it isn't one, or is damaged.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const Manifest& manifest() const { return index_.manifest; }
  const std::vector<SavedExtent>& extents() const { return index_.extents; }

  /// Computes the CRC-32s of this rank's part of the file.
  std::vector<RecordPart> read_crcs(int ranks, int rank) const;
  /// Compares them. Errors: Error, which names the first record that differs.
  void check_crcs(const std::vector<std::vector<RecordPart>>& of_ranks) const;

  /// Reads elements of one of the manifest's tensors, from `begin` on, into all of `target`, which has its type.
  void read(std::size_t tensor, std::int64_t begin, const at::Tensor& target) const;

 private:
  CheckpointFile file_;
  CheckpointIndex index_;
};

}  // namespace retinue
