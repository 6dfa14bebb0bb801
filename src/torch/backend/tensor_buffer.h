#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <span>
#include <string_view>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "retinue/collective/call.h"

namespace retinue {

/// Gives `call` the type and the reduction in the communicator's terms. Errors: UsageError that names the type or the
/// operation.
void set_reduction(CollectiveCall& call, c10::ScalarType type, const c10d::ReduceOp& op);

/// The communicator's word for elements of that type that only move; kBytes where it has none.
Dtype element_type(c10::ScalarType type);

/// Errors: UsageError unless `whole` has `parts` times the elements of `part`.
void check_elements(std::string_view call, const at::Tensor& whole, const at::Tensor& part, std::int64_t parts);

/// The communicator's view of a list of tensors: one run of memory.
///
/// Contiguous tensors that follow each other in one storage are that memory themselves; anything else is packed into a
/// contiguous copy.
class TensorBuffer {
 public:
  enum class Access { kRead, kWrite, kReadWrite };

  /// Errors: UsageError for tensors that are undefined, not on the CPU, not dense, of different types, or (written to)
  /// overlap, or hold an element twice.
  TensorBuffer(std::string_view call, at::TensorList tensors, Access access);
  TensorBuffer() = default;

  void* data() const { return memory_.data_ptr(); }
  std::size_t bytes() const { return memory_.nbytes(); }
  std::size_t count() const { return static_cast<std::size_t>(memory_.numel()); }
  c10::ScalarType type() const { return memory_.scalar_type(); }

  /// Whether the memory is a copy whose contents must get to the tensors that it was made for.
  bool must_unpack() const { return must_unpack_; }
  void unpack(at::TensorList tensors) const;

  Bytes part() const { return {static_cast<std::byte*>(data()), bytes()}; }

 private:
  at::Tensor memory_;
  bool must_unpack_ = false;
};

/// The communicator's view of a list of tensors of which each is a part: one run of memory where they are of one size
/// and follow each other, otherwise a view each.
class TensorParts {
 public:
  /// Errors: as TensorBuffer's; UsageError for a list that is empty.
  TensorParts(std::string_view call, at::TensorList tensors, TensorBuffer::Access access);
  TensorParts() = default;

  /// Whether the parts are of one size and lie one behind the other.
  bool is_even() const { return buffers_.size() == 1; }
  void* data() const { return parts_.front().data(); }
  std::size_t part_bytes() const { return parts_.front().size(); }

  std::span<const Bytes> parts() const { return parts_; }
  std::span<const ConstBytes> const_parts() const { return const_parts_; }
  c10::ScalarType type() const { return buffers_.front().type(); }

  void unpack(at::TensorList tensors) const;

 private:
  std::vector<TensorBuffer> buffers_;  ///< One for all tensors, or for each.
  std::vector<Bytes> parts_;
  std::vector<ConstBytes> const_parts_;
};

}  // namespace retinue
