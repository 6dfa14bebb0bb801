#include "retinue/torch/tensor_archive.h"

#include <ATen/EmptyTensor.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/ops/_empty_affine_quantized.h>
#include <ATen/ops/_empty_per_channel_affine_quantized.h>
#include <ATen/ops/_sparse_compressed_tensor_unsafe.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <c10/util/StringUtil.h>

#include <cstdint>
#include <string_view>

#include "retinue/base/error.h"
#include "torch/tensors/cuda_storage.h"
#include "torch/tensors/shared_storage.h"

namespace retinue::detail {
namespace {

enum class Form : std::uint8_t { kUndefined, kStrided, kQuantised, kQuantisedByChannel, kCoo, kCompressed };

struct Flags {
  bool requires_grad = false;
  bool has_grad = false;
  bool conjugate = false;
  bool negative = false;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(requires_grad, has_grad, conjugate, negative);
  }
};

/// Their number is sent as one byte.
constexpr std::int64_t kMostDimensions = 255;

Form form_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return Form::kUndefined;
  if (!tensor.is_cpu() && !(kSendsCuda && tensor.is_cuda()))
    throw UsageError(c10::str("sending a tensor: it is on ", tensor.device().str(), "; this build sends ",
                              kSendsCuda ? "tensors on CPU and CUDA" : "CPU tensors, or CUDA ones with RETINUE_CUDA=ON",
                              ": move it with tensor.cpu()"));
  if (tensor.requires_grad() && !tensor.is_leaf())
    throw UsageError(
        "sending a tensor: it requires grad and is not a leaf, but its autograd graph can't be sent: send "
        "tensor.detach()");
  if (tensor.dim() > kMostDimensions)
    throw UsageError(c10::str("sending a tensor: it has ", tensor.dim(), " dimensions; at most ", kMostDimensions,
                              " can be sent: reshape it"));
  if (tensor.is_sparse()) return Form::kCoo;
  if (at::sparse_csr::is_sparse_compressed(tensor)) return Form::kCompressed;
  if (tensor.layout() != at::kStrided || !tensor.has_storage() || tensor.is_nested())
    throw UsageError(c10::str("sending a tensor: one of layout ", tensor.layout(),
                              tensor.is_nested() ? ", nested," : "", " has no storage that can be shared"));
  if (!tensor.is_quantized()) return Form::kStrided;
  return tensor.qscheme() == at::kPerTensorAffine ? Form::kQuantised : Form::kQuantisedByChannel;
}

[[noreturn]] void refuse(std::string_view why) {
  throw UsageError(c10::str("receiving a tensor: ", why, ": the message was not written by Retinue"));
}
constexpr const char* kReachesOutside = "it would reach outside its storage";

void write_sizes(ValueOutput& output, at::IntArrayRef sizes) {
  output(static_cast<std::uint8_t>(sizes.size()));
  output.write(sizes.data(), sizes.size() * sizeof(std::int64_t));
}

at::DimVector read_sizes(ValueInput& input) {
  std::uint8_t count = 0;
  input(count);
  at::DimVector sizes(count);
  for (std::int64_t& size : sizes) {
    input(size);
    if (size < 0) refuse("a size is negative");
  }
  return sizes;
}

at::ScalarType read_type(ValueInput& input) {
  std::uint8_t type = 0;
  input(type);
  if (type >= static_cast<std::uint8_t>(at::ScalarType::Undefined)) refuse("its type is unknown");
  return static_cast<at::ScalarType>(type);
}

/// What a tensor in a message is. Parts are what another one is made of; grads and parts have no grads, and parts are
/// dense, so that no message nests deeper.
enum class Role { kWhole, kGrad, kPart };
at::Tensor read_as(ValueInput& input, Role role);

/// Where a tensor's numbers lie: what strided and quantised ones have in common.
struct Place {
  at::DimVector sizes;
  at::DimVector strides;
  std::int64_t offset;
  c10::Storage storage;
};

void write_place(ValueOutput& output, const at::Tensor& tensor) {
  write_sizes(output, tensor.sizes());
  write_sizes(output, tensor.strides());
  const c10::Storage& storage = tensor.storage();
  output(storage.device().is_cuda(), tensor.storage_offset(), static_cast<std::uint64_t>(storage.nbytes()));
  if constexpr (kSendsCuda)
    if (storage.device().is_cuda()) return write_cuda_storage(output, storage);
  if (storage.nbytes() == 0) return;
  const bool is_resizable = storage.resizable();
  if (c10::DataPtr before = share_storage(storage, JobMemory::current(), [&] { output.announce(); })) {
    output.add_undo([storage, is_resizable] { unshare_storage(storage, is_resizable); });
    output.leave_behind(std::make_shared<c10::DataPtr>(std::move(before)), storage.nbytes());
  }
  output(sent_block(storage));
}

/// Of `bytes` bytes at least.
c10::Storage read_storage(ValueInput& input, bool is_on_cuda, std::uint64_t bytes) {
  if constexpr (kSendsCuda)
    if (is_on_cuda) return read_cuda_storage(input, bytes);
  if (is_on_cuda)
    throw UsageError(
        "receiving a tensor: it is a CUDA tensor, but this build has no CUDA: build it with RETINUE_CUDA=ON");
  if (bytes == 0) return c10::Storage(c10::Storage::use_byte_size_t(), 0, allocate_shared(nullptr, 0));
  BlockHandle handle;  // Not a SharedBlock: what this process has already is not held once more.
  input.read(&handle, sizeof handle);
  if (bytes > handle.bytes) refuse(kReachesOutside);
  return received_storage(JobMemory::current(), handle, bytes);
}

Place read_place(ValueInput& input, at::ScalarType type) {
  Place place{.sizes = read_sizes(input), .strides = read_sizes(input), .offset = 0, .storage = {}};
  bool is_on_cuda = false;
  std::uint64_t bytes = 0;
  input(is_on_cuda, place.offset, bytes);
  const bool fits = place.strides.size() == place.sizes.size() && place.offset >= 0 &&
                    at::detail::computeStorageNbytes(place.sizes, place.strides, c10::elementSize(type),
                                                     static_cast<std::size_t>(place.offset)) <= bytes;
  if (!fits) refuse(kReachesOutside);
  place.storage = read_storage(input, is_on_cuda, bytes);
  return place;
}

at::TensorOptions options_of(const Place& place, at::ScalarType type) {
  return at::TensorOptions(type).device(place.storage.device());
}

at::Tensor strided(const Place& place, at::ScalarType type) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(place.storage), c10::DispatchKeySet(options_of(place, type).computeDispatchKey()),
      c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(place.sizes, place.strides, place.offset);
  return tensor;
}

void write_values(ValueOutput& output, const at::Tensor& tensor, Form form) {
  output(static_cast<std::uint8_t>(tensor.scalar_type()));
  switch (form) {
    case Form::kUndefined:
      break;
    case Form::kQuantised:
      output(tensor.q_scale(), tensor.q_zero_point());
      write_place(output, tensor);
      break;
    case Form::kQuantisedByChannel:
      output(tensor.q_per_channel_axis());
      write_tensor(output, tensor.q_per_channel_scales());
      write_tensor(output, tensor.q_per_channel_zero_points());
      write_place(output, tensor);
      break;
    case Form::kStrided:
      write_place(output, tensor);
      break;
    case Form::kCoo:
      write_sizes(output, tensor.sizes());
      output(tensor.is_coalesced());
      write_tensor(output, tensor._indices().detach());
      write_tensor(output, tensor._values().detach().resolve_conj().resolve_neg());
      break;
    case Form::kCompressed: {
      const bool by_rows = tensor.layout() == at::kSparseCsr || tensor.layout() == at::kSparseBsr;
      write_sizes(output, tensor.sizes());
      output(static_cast<std::int8_t>(tensor.layout()));
      write_tensor(output, by_rows ? tensor.crow_indices() : tensor.ccol_indices());
      write_tensor(output, by_rows ? tensor.col_indices() : tensor.row_indices());
      write_tensor(output, tensor.values().detach().resolve_conj().resolve_neg());
      break;
    }
  }
}

at::Tensor read_quantised(ValueInput& input, at::ScalarType type) {
  double scale = 1;
  std::int64_t zero_point = 0;
  input(scale, zero_point);
  const Place place = read_place(input, type);
  return at::_empty_affine_quantized({0}, options_of(place, type), scale, zero_point)
      .set_(place.storage, place.offset, place.sizes, place.strides);
}

at::Tensor read_quantised_by_channel(ValueInput& input, at::ScalarType type) {
  std::int64_t axis = 0;
  input(axis);
  const at::Tensor scales = read_as(input, Role::kPart);
  const at::Tensor zero_points = read_as(input, Role::kPart);
  const Place place = read_place(input, type);
  // Contiguous, or copies of them would have as many elements as somebody says.
  if (axis < 0 || static_cast<std::size_t>(axis) >= place.sizes.size() || !scales.is_contiguous() ||
      !zero_points.is_contiguous())
    refuse("its channels have no scales");
  at::DimVector none = place.sizes;  // Of no elements: the storage is there already.
  for (std::size_t dim = 0; dim < none.size(); ++dim)
    if (static_cast<std::int64_t>(dim) != axis) none[dim] = 0;
  return at::_empty_per_channel_affine_quantized(none, scales, zero_points, axis, options_of(place, type))
      .set_(place.storage, place.offset, place.sizes, place.strides);
}

at::Tensor read_coo(ValueInput& input) {
  const at::DimVector sizes = read_sizes(input);
  bool coalesced = false;
  input(coalesced);
  const at::Tensor indices = read_as(input, Role::kPart);
  const at::Tensor values = read_as(input, Role::kPart);
  if (at::globalContext().checkSparseTensorInvariants())
    at::_validate_sparse_coo_tensor_args(indices, values, sizes, coalesced);
  return at::_sparse_coo_tensor_unsafe(indices, values, sizes, values.options().layout(at::kSparse), coalesced);
}

/// Whether the parts have the shapes that a tensor of these sizes needs; what its indices say is the sender's.
bool is_compressed(at::Layout layout, at::IntArrayRef sizes, const at::Tensor& compressed, const at::Tensor& plain,
                   const at::Tensor& values) {
  const bool in_blocks = layout == at::kSparseBsr || layout == at::kSparseBsc;
  const bool by_rows = layout == at::kSparseCsr || layout == at::kSparseBsr;
  const bool is_typed = compressed.scalar_type() == plain.scalar_type() &&
                        (plain.scalar_type() == at::kInt || plain.scalar_type() == at::kLong);
  if ((!in_blocks && !by_rows && layout != at::kSparseCsc) || !is_typed || compressed.dim() == 0) return false;
  // [batches..., rows, columns, dense...] of which the rows or the columns are compressed.
  const auto batches = static_cast<std::size_t>(compressed.dim() - 1);
  const std::size_t first_dense = batches + (in_blocks ? 3 : 1);  // Of the values, which are [batches..., nnz, ...].
  if (sizes.size() < batches + 2 || plain.sizes().size() != batches + 1 ||
      values.sizes().size() != first_dense + sizes.size() - batches - 2)
    return false;
  const std::size_t line = batches + (by_rows ? 0 : 1);
  const at::DimVector single = {1, 1};
  const at::IntArrayRef block = in_blocks ? values.sizes().slice(batches + 1, 2) : at::IntArrayRef(single);
  const at::IntArrayRef of_batches = sizes.slice(0, batches);
  return block[0] > 0 && block[1] > 0 && sizes[batches] % block[0] == 0 && sizes[batches + 1] % block[1] == 0 &&
         compressed.sizes()[batches] == sizes[line] / block[by_rows ? 0 : 1] + 1 &&
         plain.sizes()[batches] == values.sizes()[batches] && compressed.sizes().slice(0, batches) == of_batches &&
         plain.sizes().slice(0, batches) == of_batches && values.sizes().slice(0, batches) == of_batches &&
         values.sizes().slice(first_dense) == sizes.slice(batches + 2);
}

at::Tensor read_compressed(ValueInput& input) {
  const at::DimVector sizes = read_sizes(input);
  std::int8_t layout = 0;
  input(layout);
  const at::Tensor compressed = read_as(input, Role::kPart);
  const at::Tensor plain = read_as(input, Role::kPart);
  const at::Tensor values = read_as(input, Role::kPart);
  if (!is_compressed(static_cast<at::Layout>(layout), sizes, compressed, plain, values))
    refuse("its parts don't form a sparse tensor");
  return at::_sparse_compressed_tensor_unsafe(compressed, plain, values, sizes,
                                              values.options().layout(static_cast<at::Layout>(layout)));
}

at::Tensor read_values(ValueInput& input, Form form) {
  const at::ScalarType type = read_type(input);
  switch (form) {
    case Form::kStrided:
      if (c10::isQIntType(type)) break;
      return strided(read_place(input, type), type);
    case Form::kQuantised:
      return read_quantised(input, type);
    case Form::kQuantisedByChannel:
      return read_quantised_by_channel(input, type);
    case Form::kCoo:
      return read_coo(input);
    case Form::kCompressed:
      return read_compressed(input);
    case Form::kUndefined:
      break;
  }
  refuse("its form is unknown");
}

at::Tensor read_as(ValueInput& input, Role role) {
  std::uint8_t number = 0;
  input(number);
  const auto form = static_cast<Form>(number);
  if (role == Role::kPart && form != Form::kStrided) refuse("a part of it is not dense");
  if (form == Form::kUndefined) return {};
  Flags flags;
  input(flags);
  if (role != Role::kWhole && (flags.has_grad || flags.requires_grad)) refuse("a part of it has a grad");
  // Torch would make a copy of such a part, of as many elements as somebody says.
  const bool is_kept = form == Form::kStrided && role != Role::kPart;
  if ((flags.conjugate || flags.negative) && !is_kept) refuse("a part of it is to be conjugated or negated");
  at::Tensor tensor;
  try {
    tensor = read_values(input, form);
    if (flags.conjugate) tensor._set_conj(true);
    if (flags.negative) tensor._set_neg(true);
    if (flags.requires_grad) tensor.requires_grad_(true);
  } catch (const c10::AcceleratorError&) {
    throw;  // Of an earlier kernel: the message is not at fault.
  } catch (const c10::Error& error) {
    refuse(error.what_without_backtrace());
  }
  if (flags.has_grad) tensor.mutable_grad() = read_as(input, Role::kGrad);
  return tensor;
}

}  // namespace

void write_tensor(ValueOutput& output, const at::Tensor& tensor) {
  const Form form = form_of(tensor);
  output(static_cast<std::uint8_t>(form));
  if (form == Form::kUndefined) return;
  const Flags flags{.requires_grad = tensor.requires_grad(),
                    .has_grad = tensor.is_leaf() && tensor.grad().defined(),
                    .conjugate = tensor.is_conj(),
                    .negative = tensor.is_neg()};
  output(flags);
  write_values(output, tensor, form);
  if (flags.has_grad) write_tensor(output, tensor.grad().detach());
}

at::Tensor read_tensor(ValueInput& input) {
  return read_as(input, Role::kWhole);
}

}  // namespace retinue::detail
