#include "torch/backend/tensor_overlap.h"

#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The memory from a tensor's first element to its last one.
struct Extent {
  const at::Tensor* tensor;
  std::size_t index;  ///< In the list.
  std::uintptr_t begin;
  std::uintptr_t end;
};

Extent extent_of(const at::Tensor& tensor, std::size_t index) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  std::int64_t elements = tensor.numel() == 0 ? 0 : 1;
  if (elements > 0)
    for (std::int64_t i = 0; i < tensor.dim(); ++i) elements += (tensor.size(i) - 1) * tensor.stride(i);
  return {&tensor, index, begin, begin + static_cast<std::uintptr_t>(elements) * tensor.element_size()};
}

/// Bytes that tensors have taken, of a run of memory.
class Mask {
 public:
  explicit Mask(std::span<const Extent> extents)
      : begin_(extents.front().begin),
        taken_(at::zeros({static_cast<std::int64_t>(end_of(extents) - begin_)}, at::kByte)) {}

  /// Whether none of the tensor's bytes was taken before.
  bool take(const Extent& extent) {
    const at::Tensor bytes = bytes_of(extent);
    if (bytes.any().item<bool>()) return false;
    bytes.fill_(1);
    return true;
  }
  std::int64_t taken() const { return taken_.count_nonzero().item<std::int64_t>(); }

 private:
  static std::uintptr_t end_of(std::span<const Extent> extents) {
    return std::max_element(extents.begin(), extents.end(),
                            [](const Extent& a, const Extent& b) { return a.end < b.end; })
        ->end;
  }

  at::Tensor bytes_of(const Extent& extent) const {
    const auto element = static_cast<std::int64_t>(extent.tensor->element_size());
    std::vector<std::int64_t> sizes = extent.tensor->sizes().vec();
    std::vector<std::int64_t> strides = extent.tensor->strides().vec();
    for (std::int64_t& stride : strides) stride *= element;
    sizes.push_back(element);
    strides.push_back(1);
    return taken_.as_strided(sizes, strides, static_cast<std::int64_t>(extent.begin - begin_));
  }

  std::uintptr_t begin_;
  at::Tensor taken_;
};

[[noreturn]] void refuse_pair(std::string_view call, std::size_t one, std::size_t other) {
  throw UsageError(c10::str(call, ": tensors ", std::min(one, other), " and ", std::max(one, other),
                            " of its outputs overlap in memory; use separate memory for each"));
}

[[noreturn]] void refuse_pair(std::string_view call, std::span<const Extent> earlier, const Extent& later) {
  for (const Extent& extent : earlier) {
    const Extent both[] = {extent, later};
    Mask mask(both);
    mask.take(extent);
    if (!mask.take(later)) refuse_pair(call, extent.index, later.index);
  }
  refuse_pair(call, earlier.front().index, later.index);
}

void check_own_elements(std::string_view call, const Extent& extent) {
  Mask mask({&extent, 1});
  mask.take(extent);
  if (mask.taken() != static_cast<std::int64_t>(extent.tensor->nbytes()))
    throw UsageError(c10::str(call, ": several elements of tensor ", extent.index,
                              " of its outputs share a memory location; call contiguous() on it first"));
}

/// Of tensors, in the order of their memory, whose extents overlap: that may be interleaved, as columns of a matrix.
void check_elements(std::string_view call, std::span<const Extent> extents) {
  Mask mask(extents);
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (!mask.take(extents[i])) refuse_pair(call, extents.first(i), extents[i]);
    bytes += static_cast<std::int64_t>(extents[i].tensor->nbytes());
  }
  if (mask.taken() == bytes) return;
  for (const Extent& extent : extents) check_own_elements(call, extent);
}

bool is_plain(at::TensorList tensors) {
  std::uintptr_t end = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_non_overlapping_and_dense()) return false;
    const Extent extent = extent_of(tensors[i], i);
    if (extent.begin < end) return false;
    end = extent.end;
  }
  return true;
}

}  // namespace

void check_no_overlap(std::string_view call, at::TensorList written) {
  if (is_plain(written)) return;
  std::vector<Extent> extents;
  for (std::size_t i = 0; i < written.size(); ++i)
    if (written[i].numel() > 0) extents.push_back(extent_of(written[i], i));
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t first = 0, last = 0; first < extents.size(); first = last) {
    std::uintptr_t end = extents[first].end;
    for (last = first + 1; last < extents.size() && extents[last].begin < end; ++last)
      end = std::max(end, extents[last].end);
    if (last - first > 1 || !extents[first].tensor->is_non_overlapping_and_dense())
      check_elements(call, std::span(extents).subspan(first, last - first));
  }
}

}  // namespace retinue
