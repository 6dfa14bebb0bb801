#include "retinue/collective/dlpack.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "retinue/base/error.h"

namespace retinue {
namespace {

enum TypeCode : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct TypePair {
  Dtype dtype;
  detail::DlpackType type;
};

constexpr auto kTypes = std::to_array<TypePair>({
    {Dtype::kInt8, {kInt, 8}},
    {Dtype::kInt16, {kInt, 16}},
    {Dtype::kInt32, {kInt, 32}},
    {Dtype::kInt64, {kInt, 64}},
    {Dtype::kUint8, {kUint, 8}},
    {Dtype::kUint16, {kUint, 16}},
    {Dtype::kUint32, {kUint, 32}},
    {Dtype::kUint64, {kUint, 64}},
    {Dtype::kBFloat16, {kBfloat, 16}},
    {Dtype::kFloat16, {kFloat, 16}},
    {Dtype::kFloat32, {kFloat, 32}},
    {Dtype::kFloat64, {kFloat, 64}},
    {Dtype::kBool, {kBool, 8}},
    {Dtype::kComplex64, {kComplex, 64}},
    {Dtype::kComplex128, {kComplex, 128}},
});

Dtype dtype_of(const DlpackArray::Fields& fields) {
  for (const auto& [dtype, type] : kTypes)
    if (type.code == fields.type_code && type.bits == fields.type_bits) return dtype;
  throw UsageError(fmt::format("from_dlpack: collectives do not support DLPack's type code {} with {} bits",
                               fields.type_code, fields.type_bits));
}

/// Nothing for a negative one, and for more than memory can have.
std::optional<std::size_t> count_of(std::span<const std::int64_t> shape, std::size_t element_bytes) {
  constexpr std::size_t kMost = std::size_t{1} << 62;
  bool is_empty = false;
  std::size_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    if (extent == 0) is_empty = true;
    const auto times = static_cast<std::size_t>(extent);
    if (times > 1 && count > kMost / element_bytes / times) return std::nullopt;
    count *= std::max<std::size_t>(times, 1);
  }
  return is_empty ? 0 : count;
}

std::vector<std::int64_t> strides_of_rows(std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

/// Where a dimension has one element its stride doesn't matter.
bool is_contiguous(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides) {
  const std::vector<std::int64_t> rows = strides_of_rows(shape);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i] != 1 && strides[i] != rows[i]) return false;
  return true;
}

/// Bytes from the first element's beginning to the last one's end; nothing if they are too many.
std::optional<std::size_t> extent_of(const ArrayLayout& layout, std::size_t element_bytes) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < layout.shape.size(); ++i) {
    std::size_t span = 0;
    if (layout.strides[i] < 0 ||
        __builtin_mul_overflow(static_cast<std::size_t>(layout.shape[i] - 1),
                               static_cast<std::size_t>(layout.strides[i]), &span) ||
        __builtin_add_overflow(last, span, &last))
      return std::nullopt;
  }
  std::size_t bytes = 0;
  if (__builtin_add_overflow(last, std::size_t{1}, &last) || __builtin_mul_overflow(last, element_bytes, &bytes))
    return std::nullopt;
  return bytes;
}

}  // namespace

DlpackArray::DlpackArray(std::shared_ptr<void> owner, const Fields& fields) : owner_(std::move(owner)) {
  if (fields.major_version != 1)
    throw UsageError(fmt::format("from_dlpack: the tensor has DLPack version {}; only version 1 is supported",
                                 fields.major_version));
  if (owner_ == nullptr) throw UsageError("from_dlpack: the tensor is null");
  if (fields.device_type != detail::kDlpackCpu)
    throw UsageError(
        fmt::format("from_dlpack: the tensor is on a device of DLPack's type {}; copy it to the CPU (type {}) first",
                    fields.device_type, detail::kDlpackCpu));
  if (fields.type_lanes != 1)
    throw UsageError(fmt::format("from_dlpack: an element has {} lanes; make them a dimension", fields.type_lanes));
  dtype_ = dtype_of(fields);
  if (fields.dimensions < 0 || (fields.dimensions > 0 && fields.shape == nullptr))
    throw UsageError(fmt::format("from_dlpack: a tensor of {} dimensions has no shape", fields.dimensions));
  shape_.assign(fields.shape, fields.shape + fields.dimensions);
  const auto count = count_of(shape_, size_of(dtype_));
  if (!count)
    throw UsageError(fmt::format("from_dlpack: the shape [{}] is negative or too large", fmt::join(shape_, ", ")));
  count_ = *count;
  const std::span strides(fields.strides, fields.strides == nullptr ? 0 : shape_.size());
  if (count_ > 0 && !strides.empty() && !is_contiguous(shape_, strides))
    throw UsageError(
        fmt::format("from_dlpack: an array of shape [{}] with strides [{}] is not contiguous in row order; copy it",
                    fmt::join(shape_, ", "), fmt::join(strides, ", ")));
  if (count_ > 0 && fields.data == nullptr) throw UsageError("from_dlpack: the tensor has no data");
  if (fields.data != nullptr) data_ = static_cast<std::byte*>(fields.data) + fields.byte_offset;
  is_read_only_ = fields.is_read_only;
}

void* DlpackArray::output() const {
  if (is_read_only_) throw UsageError("a read-only DLPack tensor can't receive a result; copy it first");
  return data_;
}

void DlpackArray::check_type(Dtype dtype, std::size_t align) const {
  if (dtype != dtype_)
    throw UsageError(
        fmt::format("a DLPack tensor of {} can't be used as an array of {}", name_of(dtype_), name_of(dtype)));
  if (reinterpret_cast<std::uintptr_t>(data_) % align != 0)
    throw UsageError(fmt::format("a DLPack tensor of {} is not aligned to {} bytes; give its pointer and count",
                                 name_of(dtype_), align));
}

namespace detail {

DlpackType dlpack_type_of(Dtype dtype) {
  for (const auto& pair : kTypes)
    if (pair.dtype == dtype) return pair.type;
  throw UsageError(fmt::format("to_dlpack: there is no dtype {}", static_cast<int>(dtype)));
}

DlpackExport::DlpackExport(SharedBlock in, ArrayLayout array) : block(std::move(in)), layout(std::move(array)) {
  const std::size_t element_bytes = size_of(layout.dtype);
  const auto count = count_of(layout.shape, element_bytes);
  if (!count)
    throw UsageError(fmt::format("to_dlpack: the shape [{}] is negative or too large", fmt::join(layout.shape, ", ")));
  if (layout.strides.empty()) layout.strides = strides_of_rows(layout.shape);
  if (layout.strides.size() != layout.shape.size())
    throw UsageError(
        fmt::format("to_dlpack: {} strides for {} dimensions", layout.strides.size(), layout.shape.size()));
  const auto bytes = *count == 0 ? std::optional(std::size_t{0}) : extent_of(layout, element_bytes);
  if (!bytes || layout.byte_offset > block.bytes() || *bytes > block.bytes() - layout.byte_offset)
    throw UsageError(fmt::format(
        "to_dlpack: {} of shape [{}], strides [{}], {} bytes from the beginning, does not fit into a block of {} bytes",
        name_of(layout.dtype), fmt::join(layout.shape, ", "), fmt::join(layout.strides, ", "), layout.byte_offset,
        block.bytes()));
}

}  // namespace detail
}  // namespace retinue
