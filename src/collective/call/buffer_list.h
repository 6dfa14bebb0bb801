#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "retinue/collective/call.h"

namespace retinue {

/// The buffers of an all_reduce_coalesced as if they lay one behind the other.
class BufferList {
 public:
  void set(std::span<const Bytes> buffers);

  std::span<const Bytes> buffers() const { return buffers_; }

  /// Calls visit(index, part) for the part of each buffer that lies in the `bytes` bytes from `begin` on.
  template <typename Visit>
  void visit(std::size_t begin, std::size_t bytes, Visit visit) const {
    auto index = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
    for (std::size_t part = 0; bytes > 0; begin += part, bytes -= part, ++index) {
      part = std::min(bytes, ends_[index] - begin);
      if (part > 0) visit(index, buffers_[index].last(ends_[index] - begin).first(part));
    }
  }

  /// Where these bytes lie, if in one buffer; otherwise null.
  std::byte* find(std::size_t begin, std::size_t bytes) const;
  void gather(std::byte* to, std::size_t begin, std::size_t bytes) const;
  void scatter(const std::byte* from, std::size_t begin, std::size_t bytes) const;

 private:
  std::span<const Bytes> buffers_;
  std::vector<std::size_t> ends_;
};

}  // namespace retinue
