#include "retinue/torch/shared_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>

#include "retinue/base/error.h"
#include "torch/shared_storage.h"

namespace retinue {
namespace {

struct SharedBlock {
  std::shared_ptr<JobMemory> memory;
  BlockHandle handle;
  std::uint32_t owner;
};

void release_block(void* context) {
  const std::unique_ptr<SharedBlock> block(static_cast<SharedBlock*>(context));
  // A process forked while the tensor lived inherits this pointer but never owned the block.
  if (block->memory->own_slot() != block->owner) return;
  try {
    block->memory->release(block->handle);
  } catch (const Error&) {
    // A deleter must not throw; the guardian releases what this process owns when it ends.
  }
}

}  // namespace

c10::DataPtr allocate_shared(const std::shared_ptr<JobMemory>& memory, std::size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &release_block, c10::Device(c10::kCPU)};
  auto block = std::make_unique<SharedBlock>(SharedBlock{memory, memory->allocate(bytes), memory->own_slot()});
  std::byte* data = memory->at(block->handle.offset);
  return {data, block.release(), &release_block, c10::Device(c10::kCPU)};
}

bool is_shared(const c10::DataPtr& data) {
  return data.get_context() && data.get_deleter() == &release_block;
}

at::Tensor shared_empty(at::IntArrayRef sizes, const std::shared_ptr<JobMemory>& memory, at::TensorOptions options) {
  if (!options.device().is_cpu())
    throw UsageError(
        c10::str("shared_empty: job memory holds CPU tensors, ", options.device().str(), " was asked for"));
  if (options.layout() != at::kStrided) throw UsageError("shared_empty: job memory holds dense tensors only");
  std::size_t bytes = options.dtype().itemsize();
  for (const std::int64_t size : sizes) {
    if (size < 0) throw UsageError(c10::str("shared_empty: the size ", size, " is negative"));
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(size), &bytes))
      throw UsageError("shared_empty: the tensor's bytes overflow");
  }
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, allocate_shared(memory, bytes), /*allocator=*/nullptr,
                       /*resizable=*/false);
  at::Tensor tensor = at::empty({0}, options.requires_grad(false)).set_(std::move(storage), 0, sizes);
  return tensor.requires_grad_(options.requires_grad());
}

bool is_shared(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && is_shared(tensor.storage().data_ptr());
}

}  // namespace retinue
