#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "retinue/collective/types.h"
#include "retinue/ipc/shared_block.h"

/// Exchanges arrays with other libraries by DLPack: https://dmlc.github.io/dlpack.
///
/// Needs the structs of a dlpack.h, but doesn't include one: use your own, the distribution's or LibTorch's. `Managed`
/// is DLManagedTensor or, from DLPack 1.0 on, DLManagedTensorVersioned.
namespace retinue {

/// The memory layout of an array's elements.
struct ArrayLayout {
  Dtype dtype = Dtype::kFloat32;
  std::vector<std::int64_t> shape = {};    ///< Empty: one element.
  std::vector<std::int64_t> strides = {};  ///< In elements, one per dimension. Empty: contiguous rows.
  std::size_t byte_offset = 0;             ///< Of the first element.
};

/// A contiguous array in CPU memory from another library, for collectives and messages. Copies refer to the same array;
/// it is returned when the last copy is destroyed.
///
/// Threads: as std::shared_ptr. The users synchronise access to the contents.
class DlpackArray {
 public:
  std::size_t count() const noexcept { return count_; }
  std::size_t bytes() const noexcept { return count_ * size_of(dtype_); }
  Dtype dtype() const noexcept { return dtype_; }
  const std::vector<std::int64_t>& shape() const noexcept { return shape_; }
  bool is_read_only() const noexcept { return is_read_only_; }

  const void* input() const noexcept { return data_; }
  /// Returns the same address, for results. Errors: UsageError if the array is read-only.
  void* output() const;

  /// Returns the elements. Errors: UsageError if they are not of type T, or not aligned for it.
  template <class T>
  std::span<const T> inputs() const {
    check_type(DtypeOf<T>::value, alignof(T));
    return {static_cast<const T*>(input()), count_};
  }
  template <class T>
  std::span<T> outputs() const {
    check_type(DtypeOf<T>::value, alignof(T));
    return {static_cast<T*>(output()), count_};
  }

  /// The fields that from_dlpack() read from the struct.
  struct Fields {
    std::uint32_t major_version = 1;
    bool is_read_only = false;
    int device_type = 0;
    int type_code = 0;
    int type_bits = 0;
    int type_lanes = 0;
    void* data = nullptr;
    std::uint64_t byte_offset = 0;
    int dimensions = 0;
    const std::int64_t* shape = nullptr;
    const std::int64_t* strides = nullptr;
  };
  /// Makes an array; from_dlpack() calls this.
  DlpackArray(std::shared_ptr<void> owner, const Fields& fields);

 private:
  void check_type(Dtype dtype, std::size_t align) const;

  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  std::size_t count_ = 0;
  Dtype dtype_ = Dtype::kUint8;
  bool is_read_only_ = false;
  std::vector<std::int64_t> shape_;
};

namespace detail {

constexpr int kDlpackCpu = 1;
constexpr std::uint64_t kDlpackReadOnly = 1;

struct DlpackType {
  std::uint8_t code;
  std::uint8_t bits;
};
DlpackType dlpack_type_of(Dtype dtype);

/// The data that an exported tensor needs until its deleter is called.
struct DlpackExport {
  /// Errors: UsageError if the layout isn't entirely inside the block.
  DlpackExport(SharedBlock in, ArrayLayout array);

  SharedBlock block;
  ArrayLayout layout;
};

template <class Managed>
concept VersionedDlpack = requires(Managed managed) {
  managed.version;
  managed.flags;
};

}  // namespace detail

/// Takes ownership of a tensor. Its deleter is called exactly once, at the latest when this function throws. The data
/// must be contiguous, in row order, in CPU memory.
/// Errors: UsageError, which describes what the tensor is instead.
template <class Managed>
DlpackArray from_dlpack(Managed* managed) {
  const std::shared_ptr<void> owner(managed, [managed](void*) {
    if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  });
  DlpackArray::Fields fields;
  if (managed == nullptr) return DlpackArray(owner, fields);
  if constexpr (detail::VersionedDlpack<Managed>) {
    fields.major_version = managed->version.major;
    // Nothing behind the version has a known place in another version.
    if (fields.major_version != 1) return DlpackArray(owner, fields);
    fields.is_read_only = (managed->flags & detail::kDlpackReadOnly) != 0;
  }
  const auto& tensor = managed->dl_tensor;
  fields.device_type = static_cast<int>(tensor.device.device_type);
  fields.type_code = tensor.dtype.code;
  fields.type_bits = tensor.dtype.bits;
  fields.type_lanes = tensor.dtype.lanes;
  fields.data = tensor.data;
  fields.byte_offset = tensor.byte_offset;
  fields.dimensions = tensor.ndim;
  fields.shape = tensor.shape;
  fields.strides = tensor.strides;
  return DlpackArray(owner, fields);
}

/// Exports job memory to another library, which holds it until it calls the deleter. The caller owns the returned
/// tensor until another owner takes it over. Errors: UsageError if the array is not entirely inside the block.
template <class Managed>
Managed* to_dlpack(const SharedBlock& block, const ArrayLayout& layout) {
  struct Exported {
    detail::DlpackExport held;
    Managed managed{};
  };
  auto exported = std::make_unique<Exported>(Exported{.held = detail::DlpackExport(block, layout)});
  Managed& managed = exported->managed;
  ArrayLayout& array = exported->held.layout;
  auto& tensor = managed.dl_tensor;
  tensor.data = exported->held.block.data();
  tensor.device.device_type = static_cast<decltype(tensor.device.device_type)>(detail::kDlpackCpu);
  tensor.ndim = static_cast<std::int32_t>(array.shape.size());
  const detail::DlpackType type = detail::dlpack_type_of(array.dtype);
  tensor.dtype.code = type.code;
  tensor.dtype.bits = type.bits;
  tensor.dtype.lanes = 1;
  tensor.shape = array.shape.data();
  tensor.strides = array.strides.data();
  tensor.byte_offset = array.byte_offset;
  if constexpr (detail::VersionedDlpack<Managed>) managed.version.major = 1;
  managed.manager_ctx = exported.get();
  managed.deleter = [](Managed* self) { delete static_cast<Exported*>(self->manager_ctx); };
  return &exported.release()->managed;
}

}  // namespace retinue
