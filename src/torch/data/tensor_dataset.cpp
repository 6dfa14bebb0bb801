#include "retinue/torch/tensor_dataset.h"

#include <c10/util/StringUtil.h>

#include "retinue/base/error.h"
#include "retinue/torch/detail/batch_source.h"

namespace retinue {
namespace {

at::Tensor rows_of(const at::Tensor& tensor, const char* part) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.dim() == 0)
    throw UsageError(c10::str("TensorDataset: the ", part, " must be a dense tensor of the CPU, with rows"));
  return tensor.detach();
}

PartLayout layout_of_row(const at::Tensor& tensor) {
  return {tensor.sizes().slice(1).vec(), tensor.scalar_type()};
}

void check_index(std::size_t index, std::size_t count) {
  if (index >= count) throw UsageError(c10::str("TensorDataset: there is no item ", index, ", only ", count));
}

}  // namespace

TensorDataset::TensorDataset(const at::Tensor& data, const at::Tensor& target)
    : data_(rows_of(data, "data")),
      target_(rows_of(target, "target")),
      layout_{layout_of_row(data_), layout_of_row(target_)} {
  if (data_.size(0) != target_.size(0))
    throw UsageError(
        c10::str("TensorDataset: the data have ", data_.size(0), " rows, and the target has ", target_.size(0)));
}

torch::data::Example<> TensorDataset::get(std::size_t index) {
  check_index(index, *size());
  return {data_[static_cast<std::int64_t>(index)], target_[static_cast<std::int64_t>(index)]};
}

void TensorDataset::write_item(std::size_t index, const ItemGenerator& /*generator*/, const ItemMemory& memory) const {
  check_index(index, *size());
  detail::copy_row(data_, index, memory.data);
  detail::copy_row(target_, index, memory.target);
}

}  // namespace retinue
