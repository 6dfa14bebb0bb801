#include "torch/backend/sparse_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kMostDimensions = 16;

/// What ranks say of their tensors before they give them.
struct Shape {
  std::int64_t type = 0;
  std::int64_t sparse_dimensions = 0;
  std::int64_t dimensions = 0;
  std::array<std::int64_t, kMostDimensions> sizes = {};
  std::int64_t elements = 0;  ///< That are there, of which each rank has its own number.

  bool may_be_added(const Shape& other) const {
    return type == other.type && sparse_dimensions == other.sparse_dimensions && dimensions == other.dimensions &&
           sizes == other.sizes;
  }
  std::string text() const {
    const at::IntArrayRef all(sizes.data(), static_cast<std::size_t>(dimensions));
    return c10::str(c10::toString(static_cast<c10::ScalarType>(type)), " of sizes ", all, " with ", sparse_dimensions,
                    " sparse dimensions");
  }
};

Shape shape_of(const at::Tensor& tensor) {
  Shape shape{.type = static_cast<std::int64_t>(tensor.scalar_type()),
              .sparse_dimensions = tensor.sparse_dim(),
              .dimensions = tensor.dim(),
              .sizes = {},
              .elements = tensor._nnz()};
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), shape.sizes.begin());
  return shape;
}

Bytes bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Gathers one tensor of each rank, of which `sizes_of(rank)` says the size.
template <class SizesOf>
std::vector<at::Tensor> gather_parts(Communicator& ranks, const at::Tensor& own, const CallSite& site,
                                     const SizesOf& sizes_of) {
  std::vector<at::Tensor> parts;
  std::vector<Bytes> places;
  for (int rank = 0; rank < ranks.size(); ++rank)
    places.push_back(bytes_of(parts.emplace_back(at::empty(sizes_of(rank), own.options()))));
  ranks.run(CollectiveCall::all_gather(bytes_of(own), places), site);
  return parts;
}

}  // namespace

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  constexpr const char* kCall = "all_reduce";
  if (tensor.layout() != at::kSparse || !tensor.device().is_cpu())
    throw UsageError(c10::str(
        kCall, ": a tensor of layout ", tensor.layout(), " on ", tensor.device().str(),
        "; the only supported sparse tensors are COO tensors on the CPU: convert it with to_sparse() or to_dense()"));
  if (static_cast<c10d::ReduceOp::RedOpType>(op) != c10d::ReduceOp::SUM)
    throw UsageError(c10::str(kCall, ": sparse tensors only support ReduceOp::SUM; convert them with to_dense()"));
  if (static_cast<std::size_t>(tensor.dim()) > kMostDimensions)
    throw UsageError(c10::str(kCall, ": a sparse tensor of ", tensor.dim(), " dimensions; at most ", kMostDimensions,
                              " are supported"));
}

void sum_sparse(Communicator& ranks, const at::Tensor& tensor, const CallSite& site) {
  const at::NoGradGuard no_grad;
  const at::Tensor own = tensor.detach().coalesce();
  const Shape shape = shape_of(own);
  std::vector<Shape> shapes(static_cast<std::size_t>(ranks.size()));
  ranks.all_gather(&shape, shapes.data(), sizeof shape, site);
  for (std::size_t rank = 1; rank < shapes.size(); ++rank)
    if (!shapes[rank].may_be_added(shapes[0]))
      throw UsageError(c10::str("all_reduce: rank 0 has a sparse tensor, ", shapes[0].text(), ", but rank ", rank,
                                " has ", shapes[rank].text()));
  const auto elements_of = [&](int rank) { return shapes[static_cast<std::size_t>(rank)].elements; };
  const std::vector<at::Tensor> indices = gather_parts(ranks, own.indices().contiguous(), site, [&](int rank) {
    return std::vector<std::int64_t>{own.sparse_dim(), elements_of(rank)};
  });
  const std::vector<at::Tensor> values = gather_parts(ranks, own.values().contiguous(), site, [&](int rank) {
    std::vector<std::int64_t> sizes = own.values().sizes().vec();
    sizes.front() = elements_of(rank);
    return sizes;
  });
  at::Tensor sum;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    const at::Tensor part = at::sparse_coo_tensor(indices[rank], values[rank], own.sizes())._coalesced_(true);
    sum = sum.defined() ? sum + part : part;
  }
  tensor.copy_(sum.coalesce());  // Not of a detached one: that would have indices and values of its own.
}

}  // namespace retinue
