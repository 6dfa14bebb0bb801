#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "torch/checkpoint/manifest.h"

namespace retinue {

/// A part of a record.
struct RecordPart {
  std::size_t record = 0;
  std::uint64_t begin = 0;  ///< In bytes of the record, as `bytes`.
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;  ///< Once it is known.

  template <class Archive>
  void serialize(Archive& archive) {
    archive(record, begin, bytes, crc);
  }
};

/// The part of a rank, if all records are divided evenly. Cuts are at pages of the file, so that no two ranks write to
/// one page.
std::vector<RecordPart> divide(const std::vector<SavedExtent>& records, int ranks, int rank);

/// The parts that a rank writes, in the order of the file. `records`: of the manifest's tensors.
std::vector<RecordPart> parts_to_write(const Manifest& manifest, const std::vector<SavedExtent>& records, int ranks,
                                       int rank);

/// The CRC-32s of `count` records, of the parts of all ranks. Errors: Error if parts are missing.
std::vector<std::uint32_t> join_crcs(const std::vector<std::vector<RecordPart>>& of_ranks,
                                     const std::vector<SavedExtent>& records, std::size_t count);

}  // namespace retinue
