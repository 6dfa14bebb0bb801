#pragma once

#include <c10/core/ScalarType.h>

#include <cereal/types/optional.hpp>
#include <cereal/types/string.hpp>
#include <cereal/types/utility.hpp>
#include <cereal/types/vector.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "retinue/torch/distributed_sampler.h"

namespace retinue {

/// Which ranks write a tensor.
enum class Spread : std::uint8_t {
  kDivided,  ///< All ranks have it and write a part.
  kRoot,     ///< The ranks may have different ones: rank 0 writes its own.
  kSlices,   ///< Each rank writes what it has.
};

struct SavedSlice {
  int rank = 0;
  std::int64_t begin = 0;  ///< In elements, as `end`.
  std::int64_t end = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(rank, begin, end);
  }
};

struct SavedTensor {
  std::string name;  ///< What is written in Python to get it from the file: model["fc.weight"].
  std::int8_t type = 0;
  std::vector<std::int64_t> sizes;
  Spread spread = Spread::kDivided;
  std::vector<SavedSlice> slices = {};  ///< Of Spread::kSlices.

  at::ScalarType scalar_type() const { return static_cast<at::ScalarType>(type); }
  std::uint64_t element_bytes() const { return c10::elementSize(scalar_type()); }
  std::uint64_t element_count() const;
  std::uint64_t bytes() const { return element_count() * element_bytes(); }
  std::string shape_text() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, type, sizes, spread, slices);
  }
};

/// An option of an optimizer's group.
struct SavedOption {
  enum class Kind : std::uint8_t { kNumber, kBool, kPair };

  std::string name;
  Kind kind = Kind::kNumber;
  double first = 0;
  double second = 0;  ///< Of a pair.

  bool operator==(const SavedOption& other) const = default;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, kind, first, second);
  }
};

struct SavedGroup {
  std::vector<SavedOption> options;
  std::uint64_t parameter_count = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(options, parameter_count);
  }
};

/// A field of a parameter's state.
struct SavedField {
  static constexpr std::int64_t kNoTensor = -1;

  std::string name;
  std::int64_t tensor = kNoTensor;  ///< Index in the manifest's tensors.
  std::int64_t count = 0;           ///< The value without a tensor, such as of "step".

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, tensor, count);
  }
};

struct SavedParameterState {
  std::uint64_t parameter = 0;
  std::vector<SavedField> fields;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(parameter, fields);
  }
};

struct SavedOptimizer {
  std::string type;  ///< "AdamW"; a name of C++ if `archive` has the state.
  std::vector<SavedGroup> groups;
  std::vector<SavedParameterState> states;
  std::string archive;  ///< What its save() wrote, of rank 0.

  template <class Archive>
  void serialize(Archive& archive_of_this) {
    archive_of_this(type, groups, states, archive);
  }
};

/// A rank's random generator.
struct SavedGenerator {
  std::string device;  ///< As in Python: "cpu".
  std::string state;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(device, state);
  }
};

/// What a checkpoint holds, all but the elements of tensors.
struct Manifest {
  std::int64_t step = 0;
  int world_size = 1;
  std::vector<SavedTensor> tensors;
  std::optional<std::vector<std::pair<std::string, std::uint64_t>>> model;  ///< Names and indices of tensors.
  std::optional<SavedOptimizer> optimizer;
  std::optional<DistributedSamplerState> sampler;
  std::vector<std::vector<SavedGenerator>> generators;  ///< Of each rank.

  bool has_slices() const;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(step, world_size, tensors, model, optimizer, sampler, generators);
  }
};

/// Where a record lies in the file.
struct SavedExtent {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint32_t crc = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, offset, bytes, crc);
  }
};

/// The record of the file that Retinue reads; the pickle is for Python. The first extents are the manifest's tensors.
struct CheckpointIndex {
  Manifest manifest;
  std::vector<SavedExtent> extents;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(manifest, extents);
  }
};

/// The bytes of a manifest; also for comparing two.
std::string encode_manifest(const Manifest& manifest);
Manifest decode_manifest(const std::string& bytes);

/// The index with a signature, the format's version and a CRC-32.
std::string encode_index(const CheckpointIndex& index);
/// Errors: Error, which says what is wrong with it.
CheckpointIndex decode_index(const std::string& bytes);

/// The whole of what the ranks have, in rank order. Errors: Error, for the first thing in which ranks differ, and for
/// slices that overlap or lack elements.
Manifest merge_manifests(std::vector<Manifest> of_ranks);

}  // namespace retinue
