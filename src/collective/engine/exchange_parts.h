#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collective/call/call.h"
#include "retinue/collective/engine.h"

namespace retinue {

/// Moves the parts of calls by an engine. Their sizes fit.
class PartExchange {
 public:
  PartExchange(Engine& engine, int rank, int size) : engine_(engine), rank_(rank), size_(size) {}

  /// Of a call that reduces nothing. `is_uneven`: so it is on one of the ranks.
  void exchange(const Call& call, bool is_uneven);
  /// What all ranks give this one, one behind the other.
  std::span<const std::byte> parts_for_this(const Call& call);

 private:
  void all_to_all(const Call& call, Bytes output);
  ConstBytes whole_input(const Call& call);

  Engine& engine_;
  int rank_;
  int size_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> received_;
};

/// How many bytes a rank gives to each, and then takes from each.
std::vector<std::uint64_t> part_sizes(const Call& call, int size);

}  // namespace retinue
