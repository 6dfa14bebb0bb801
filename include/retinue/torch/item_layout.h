#pragma once

#include <c10/core/ScalarType.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "retinue/torch/item_generator.h"

namespace retinue {

/// Sizes and type of one item's data, or of its target, without the batch dimension.
struct PartLayout {
  std::vector<std::int64_t> sizes = {};
  at::ScalarType type = at::kFloat;

  /// Returns the bytes of the part, which are contiguous.
  std::size_t bytes() const;
  bool operator==(const PartLayout&) const = default;
};

/// Sizes and types of all items of a data set.
struct ItemLayout {
  PartLayout data = {};
  std::optional<PartLayout> target = std::nullopt;

  bool operator==(const ItemLayout&) const = default;
};

/// The place of an item in a batch. `target` is null if the layout has none.
struct ItemMemory {
  std::byte* data = nullptr;
  std::byte* target = nullptr;
};

/// A data set that writes its items straight into a batch: a DataLoader then makes no tensor for an item. Its
/// ExampleType, which data sets of LibTorch have, is torch::data::Example<> or, without a target, TensorExample.
template <class Dataset>
concept WritesItems = requires(Dataset dataset, const Dataset& same, std::size_t index, ItemGenerator generator,
                               const ItemMemory& memory) {
  { same.item_layout() } -> std::convertible_to<ItemLayout>;
  dataset.write_item(index, generator, memory);
};

}  // namespace retinue
