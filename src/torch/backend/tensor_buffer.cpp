#include "torch/backend/tensor_buffer.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <string>

#include "retinue/base/error.h"
#include "torch/backend/tensor_overlap.h"
#include "torch/libtorch_versions.h"

namespace retinue {
namespace {

void check_tensor(std::string_view call, const at::Tensor& tensor, TensorBuffer::Access access) {
  if (!tensor.defined()) throw UsageError(c10::str(call, ": the tensor is undefined"));
  if (!tensor.device().is_cpu())
    throw UsageError(c10::str(call, ": the tensor is on ", tensor.device().str(),
                              "; the group supports only CPU tensors: move it with tensor.cpu(), or use a group whose "
                              "backend supports that device"));
  if (tensor.layout() != at::kStrided || tensor.is_quantized())
    throw UsageError(c10::str(call, ": the tensor is sparse or quantized; only dense tensors are supported"));
  if (access != TensorBuffer::Access::kRead && at::has_internal_overlap(tensor) == at::MemOverlap::Yes)
    throw UsageError(c10::str(
        call,
        ": several elements of the tensor share a memory location (it was expanded); call contiguous() on it first"));
}

void check_tensors(std::string_view call, at::TensorList tensors, TensorBuffer::Access access) {
  if (tensors.empty()) throw UsageError(c10::str(call, ": the list of tensors is empty"));
  for (const at::Tensor& tensor : tensors) {
    check_tensor(call, tensor, access);
    if (tensor.scalar_type() != tensors[0].scalar_type())
      throw UsageError(c10::str(call, ": tensors of types ", c10::toString(tensors[0].scalar_type()), " and ",
                                c10::toString(tensor.scalar_type()), " in one call"));
  }
  if (access != TensorBuffer::Access::kRead) check_no_overlap(call, tensors);
}

bool is_one_run(at::TensorList tensors) {
  const std::int64_t begin = tensors[0].storage_offset();
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) {
    // A conjugated or negated view's memory holds other numbers than the tensor.
    if (!tensor.is_contiguous() || tensor.is_conj() || tensor.is_neg()) return false;
    if (!tensor.is_alias_of(tensors[0]) || tensor.storage_offset() != begin + count) return false;
    count += tensor.numel();
  }
  return true;
}

}  // namespace

Dtype element_type(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return Dtype::kFloat32;
    case c10::kDouble:
      return Dtype::kFloat64;
    case c10::kComplexFloat:
      return Dtype::kComplex64;
    case c10::kComplexDouble:
      return Dtype::kComplex128;
    case c10::kBool:
      return Dtype::kBool;
    case c10::kBFloat16:
      return Dtype::kBFloat16;
    case c10::kHalf:
      return Dtype::kFloat16;
    case c10::kChar:
      return Dtype::kInt8;
    case c10::kShort:
      return Dtype::kInt16;
    case c10::kInt:
      return Dtype::kInt32;
    case c10::kLong:
      return Dtype::kInt64;
    case c10::kByte:
      return Dtype::kUint8;
    case c10::kUInt16:
      return Dtype::kUint16;
    case c10::kUInt32:
      return Dtype::kUint32;
    case c10::kUInt64:
      return Dtype::kUint64;
    default:
      return Dtype::kBytes;
  }
}

namespace {

ReduceOp op_of(std::string_view call, c10d::ReduceOp::RedOpType op) {
  switch (op) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBitAnd;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBitOr;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBitXor;
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kPremulSum;
    default:
      throw UsageError(c10::str(call, ": the shm backend has no reduction number ", static_cast<int>(op)));
  }
}

/// What c10d's makePreMulSum() put into the reduction.
double factor_of(std::string_view call, const c10d::ReduceOp& op) {
  const auto* given = dynamic_cast<const libtorch::PreMulSumSupplement*>(op.supplement_.get());
  if (given == nullptr)
    throw UsageError(c10::str(call, ": PREMUL_SUM has no factor; make it with ", libtorch::kMakePremulSum));
  return given->tensor_factor.defined() ? given->tensor_factor.item<double>() : given->double_factor;
}

}  // namespace

void set_reduction(CollectiveCall& call, c10::ScalarType type, const c10d::ReduceOp& op) {
  const std::string_view name = name_of(call.kind);
  call.dtype = element_type(type);
  if (call.dtype == Dtype::kBytes)
    throw UsageError(
        c10::str(name, ": tensors of type ", c10::toString(type), " cannot be reduced; convert the tensor first"));
  call.op = op_of(name, op);
  if (!is_defined(call.op, call.dtype))
    throw UsageError(
        c10::str(name, ": tensors of type ", c10::toString(type), " do not support the reduction ", name_of(call.op)));
  if (call.op == ReduceOp::kPremulSum) call.factor = factor_of(name, op);
}

void check_elements(std::string_view call, const at::Tensor& whole, const at::Tensor& part, std::int64_t parts) {
  if (!whole.defined() || !part.defined()) throw UsageError(c10::str(call, ": a tensor is undefined"));
  if (whole.numel() != parts * part.numel())
    throw UsageError(
        c10::str(call, ": a tensor of ", whole.numel(), " elements where ", parts, " x ", part.numel(), " are needed"));
}

TensorBuffer::TensorBuffer(std::string_view call, at::TensorList tensors, Access access) {
  check_tensors(call, tensors, access);
  std::int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  if (is_one_run(tensors)) {
    memory_ = tensors.size() == 1 ? tensors[0] : tensors[0].detach().as_strided({count}, {1});
    return;
  }
  const at::NoGradGuard no_grad;
  must_unpack_ = access != Access::kRead;
  memory_ = at::empty({count}, tensors[0].options().requires_grad(false));
  if (access == Access::kWrite) return;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    memory_.narrow(0, begin, tensor.numel()).view(tensor.sizes()).copy_(tensor.detach());
    begin += tensor.numel();
  }
}

void TensorBuffer::unpack(at::TensorList tensors) const {
  if (!must_unpack_) return;
  const at::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.detach().copy_(memory_.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

TensorParts::TensorParts(std::string_view call, at::TensorList tensors, TensorBuffer::Access access) {
  check_tensors(call, tensors, access);
  const bool even = std::all_of(tensors.begin(), tensors.end(),
                                [&](const at::Tensor& tensor) { return tensor.numel() == tensors[0].numel(); });
  if (even && is_one_run(tensors)) {
    const Bytes all = buffers_.emplace_back(call, tensors, access).part();
    const std::size_t bytes = all.size() / tensors.size();
    for (std::size_t i = 0; i < tensors.size(); ++i) parts_.push_back(all.subspan(i * bytes, bytes));
  } else {
    for (const at::Tensor& tensor : tensors) parts_.push_back(buffers_.emplace_back(call, tensor, access).part());
  }
  const_parts_.assign(parts_.begin(), parts_.end());
}

void TensorParts::unpack(at::TensorList tensors) const {
  if (buffers_.size() != tensors.size()) return;  // One run, which is the tensors' own memory.
  for (std::size_t i = 0; i < buffers_.size(); ++i) buffers_[i].unpack(tensors[i]);
}

}  // namespace retinue
