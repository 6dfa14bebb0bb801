#pragma once

#include <cstddef>
#include <source_location>
#include <string>
#include <vector>

#include "retinue/torch/process_group.h"
#include "torch/checkpoint/checkpoint_folder.h"
#include "torch/checkpoint/manifest.h"
#include "torch/checkpoint/snapshot.h"
#include "torch/checkpoint/zip_file.h"
#include "torch/groups/failure.h"

namespace retinue {

/// The names of records.
inline constexpr const char* kArchiveName = "archive/";
inline constexpr const char* kIndexRecord = "retinue_index";

/// A save that all ranks have agreed on.
struct CheckpointJob {
  CheckpointFolder folder;
  std::size_t keep = 0;
  Manifest manifest;  ///< Of all ranks, but for generators: those of this rank.
  ZipLayout layout;   ///< With the records of the manifest's tensors.
  std::vector<BytesToWrite> bytes;
  Failure failure;  ///< Why this rank has no bytes to write.
  std::source_location where;
};

/// Where the records of the manifest's tensors are.
ZipLayout lay_out(const Manifest& manifest);
std::vector<SavedExtent> extents_of(const ZipLayout& layout, const Manifest& manifest);

/// Writes the file, together with the other ranks. Errors: SystemError or UsageError, the same on all ranks; those of
/// collectives.
void write_checkpoint(CheckpointJob& job, const ProcessGroup& group);

}  // namespace retinue
