#include "retinue/torch/detail/batch_source.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "retinue/base/error.h"

namespace retinue {

std::size_t PartLayout::bytes() const {
  const std::int64_t count = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(count) * c10::elementSize(type);
}

namespace detail {
namespace {

/// `name` returns, for an error, "data of item 7".
template <class Name>
void check_is_dense(const at::Tensor& tensor, Name name) {
  if (!tensor.defined()) throw UsageError(c10::str("DataLoader: the ", name(), " is an undefined tensor"));
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.is_nested() || tensor.is_quantized())
    throw UsageError(c10::str("DataLoader: the ", name(), " is a ", tensor.scalar_type(), " tensor of layout ",
                              tensor.layout(), " on ", tensor.device().str(),
                              "; a batch stacks dense tensors of the CPU, which are not quantized"));
}

PartLayout part_layout(const at::Tensor& tensor, const char* part, bool is_batch) {
  check_is_dense(tensor, [&] { return c10::str(part, is_batch ? " of a batch" : " of an item"); });
  if (is_batch && tensor.dim() == 0)
    throw UsageError(c10::str("DataLoader: a batch's ", part, " has no dimensions; the first one counts its items"));
  const at::IntArrayRef sizes = is_batch ? tensor.sizes().slice(1) : tensor.sizes();
  return {sizes.vec(), tensor.scalar_type()};
}

void copy_to(const at::Tensor& tensor, std::byte* memory) {
  if (tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg()) {
    if (tensor.nbytes() != 0) std::memcpy(memory, tensor.const_data_ptr(), tensor.nbytes());
  } else {
    at::from_blob(memory, tensor.sizes(), at::TensorOptions(tensor.scalar_type())).copy_(tensor);
  }
}

/// `count`: of items, if the tensor is a whole batch.
void store_part(const at::Tensor& tensor, const char* part, std::size_t first, std::optional<std::size_t> count,
                const PartLayout& layout, std::byte* memory, const BatchJob& job) {
  const auto name = [&] {
    return c10::str(part, " of ", count ? "the batch that begins with item " : "item ", job.indices[first]);
  };
  check_is_dense(tensor, name);
  std::vector<std::int64_t> sizes = layout.sizes;
  if (count) sizes.insert(sizes.begin(), static_cast<std::int64_t>(*count));
  if (tensor.sizes() != at::IntArrayRef(sizes) || tensor.scalar_type() != layout.type)
    throw UsageError(c10::str("DataLoader: the ", name(), " is a ", tensor.scalar_type(), " tensor of sizes ",
                              tensor.sizes(), ", but expected was a ", layout.type, " tensor of sizes ",
                              at::IntArrayRef(sizes), ": items must be alike to be stacked"));
  copy_to(tensor, memory + first * layout.bytes());
}

}  // namespace

ItemLayout layout_of(const at::Tensor& data, const at::Tensor* target, bool is_batch) {
  ItemLayout layout{part_layout(data, "data", is_batch)};
  if (target != nullptr) layout.target = part_layout(*target, "target", is_batch);
  return layout;
}

void store(const at::Tensor& data, const at::Tensor* target, std::size_t first, std::optional<std::size_t> count,
           const ItemLayout& layout, const BatchJob& job) {
  store_part(data, "data", first, count, layout.data, job.memory.data, job);
  if (target != nullptr) store_part(*target, "target", first, count, *layout.target, job.memory.target, job);
}

void check_count(std::size_t got, std::span<const std::size_t> indices) {
  if (got != indices.size())
    throw UsageError(c10::str("DataLoader: get_batch() returned ", got, " items for ", indices.size(),
                              " indices, of which the first is ", indices.front()));
}

void copy_row(const at::Tensor& tensor, std::size_t row, std::byte* memory) {
  if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) {
    copy_to(tensor[static_cast<std::int64_t>(row)], memory);
    return;
  }
  const std::size_t bytes = tensor.nbytes() / static_cast<std::size_t>(tensor.size(0));
  if (bytes != 0) std::memcpy(memory, static_cast<const std::byte*>(tensor.const_data_ptr()) + row * bytes, bytes);
}

}  // namespace detail
}  // namespace retinue
