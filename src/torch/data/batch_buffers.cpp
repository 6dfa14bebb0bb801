#include "torch/data/batch_buffers.h"

#include <ATen/ops/empty.h>

#include <atomic>
#include <utility>
#include <vector>

#include "retinue/torch/shared_tensor.h"

namespace retinue {
namespace {

at::Tensor bytes_for(std::size_t bytes) {
  const auto count = static_cast<std::int64_t>(bytes);
  if (JobMemory::current_or_null() != nullptr) return shared_empty({count}, at::kByte);
  return at::empty({count}, at::kByte);
}

/// Whether this is the only tensor of its storage.
bool is_let_go(const at::Tensor& tensor) {
  return !tensor.defined() || tensor.storage().use_count() == 1;
}

/// Whether other processes may have it: what was sent is known by a weak reference.
bool was_sent(const at::Tensor& tensor) {
  return tensor.defined() && tensor.storage().getWeakStorageImpl().weak_use_count() > 2;
}

at::Tensor items_of(const at::Tensor& bytes, const PartLayout& layout, std::size_t count) {
  std::vector<std::int64_t> sizes = layout.sizes;
  sizes.insert(sizes.begin(), static_cast<std::int64_t>(count));
  return at::empty({0}, at::TensorOptions(layout.type)).set_(bytes.storage(), 0, sizes);
}

}  // namespace

ItemMemory BatchBuffers::Buffer::memory() const {
  ItemMemory memory{static_cast<std::byte*>(data.mutable_data_ptr())};
  if (target.defined()) memory.target = static_cast<std::byte*>(target.mutable_data_ptr());
  return memory;
}

BatchBuffers::Buffer BatchBuffers::make() const {
  Buffer buffer;
  buffer.data = bytes_for(batch_size_ * layout_.data.bytes());
  if (layout_.target) buffer.target = bytes_for(batch_size_ * layout_.target->bytes());
  return buffer;
}

BatchBuffers::Buffer& BatchBuffers::take() {
  Buffer* found = nullptr;
  std::size_t spare = 0;
  for (auto each = buffers_.begin(); each != buffers_.end();) {
    const auto buffer = each++;
    if (buffer->is_filled || !is_let_go(buffer->data) || !is_let_go(buffer->target)) continue;
    if (found == nullptr && !was_sent(buffer->data) && !was_sent(buffer->target))
      found = &*buffer;
    else if (was_sent(buffer->data) || was_sent(buffer->target) || ++spare > spare_count_)
      buffers_.erase(buffer);
  }
  // The loop's thread let go with a release, after its last look at the old contents.
  std::atomic_thread_fence(std::memory_order_acquire);
  if (found == nullptr) found = &buffers_.emplace_back(make());
  found->is_filled = true;
  return *found;
}

detail::LoaderEngine::Batch BatchBuffers::hand_out(Buffer& buffer, std::size_t count) const {
  detail::LoaderEngine::Batch batch{items_of(buffer.data, layout_.data, count), {}};
  if (layout_.target) batch.target = items_of(buffer.target, *layout_.target, count);
  buffer.is_filled = false;
  return batch;
}

}  // namespace retinue
