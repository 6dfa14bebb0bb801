#pragma once

#include <ATen/core/Tensor.h>
#include <torch/data/datasets/base.h>

#include <cstddef>
#include <optional>

#include "retinue/torch/item_layout.h"

namespace retinue {

/// A data set of two tensors, as Python's TensorDataset: item i is the i-th row of both.
///
/// Shape: data [items, ...], target [items, ...]. They may be mapped files or shared memory; only rows that are used
/// are read. Threads: copies share the tensors, and any number of threads may read them. Errors: UsageError if the
/// numbers of rows differ, or for a tensor that isn't a dense one of the CPU.
class TensorDataset : public torch::data::datasets::Dataset<TensorDataset> {
 public:
  TensorDataset(const at::Tensor& data, const at::Tensor& target);

  torch::data::Example<> get(std::size_t index) override;
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(data_.size(0)); }

  ItemLayout item_layout() const { return layout_; }
  void write_item(std::size_t index, const ItemGenerator& generator, const ItemMemory& memory) const;

  const at::Tensor& data() const { return data_; }
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor data_;
  at::Tensor target_;
  ItemLayout layout_;
};

}  // namespace retinue
