#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <list>

#include "retinue/torch/data_loader.h"
#include "retinue/torch/item_layout.h"

namespace retinue {

/// Memory of batches that is used again once nobody has tensors of it any more.
class BatchBuffers {
 public:
  struct Buffer {
    at::Tensor data = {};  ///< Bytes.
    at::Tensor target = {};
    bool is_filled = false;  ///< Workers write it, or have written it.

    ItemMemory memory() const;
  };

  BatchBuffers(const ItemLayout& layout, std::size_t batch_size, std::size_t spare_count)
      : layout_(layout), batch_size_(batch_size), spare_count_(spare_count) {}

  /// Returns a buffer that is the caller's until hand_out() or put_back().
  Buffer& take();
  /// Returns the first `count` items of a buffer as tensors, which keep it from being used again.
  detail::LoaderEngine::Batch hand_out(Buffer& buffer, std::size_t count) const;
  static void put_back(Buffer& buffer) { buffer.is_filled = false; }

 private:
  Buffer make() const;

  ItemLayout layout_;
  std::size_t batch_size_;
  std::size_t spare_count_;    ///< Of free buffers that are kept.
  std::list<Buffer> buffers_;  ///< Their places stay as they are.
};

}  // namespace retinue
