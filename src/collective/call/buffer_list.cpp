#include "collective/call/buffer_list.h"

#include "collective/kernels/kernels.h"

namespace retinue {

void BufferList::set(std::span<const Bytes> buffers) {
  buffers_ = buffers;
  ends_.clear();
  std::size_t end = 0;
  for (const Bytes& buffer : buffers) ends_.push_back(end += buffer.size());
}

std::byte* BufferList::find(std::size_t begin, std::size_t bytes) const {
  const auto index = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), begin) - ends_.begin());
  if (index == ends_.size() || begin + bytes > ends_[index]) return nullptr;
  return buffers_[index].data() + (buffers_[index].size() - (ends_[index] - begin));
}

void BufferList::gather(std::byte* to, std::size_t begin, std::size_t bytes) const {
  visit(begin, bytes, [&to](std::size_t, Bytes part) {
    copy_bytes(to, part.data(), part.size());
    to += part.size();
  });
}

void BufferList::scatter(const std::byte* from, std::size_t begin, std::size_t bytes) const {
  visit(begin, bytes, [&from](std::size_t, Bytes part) {
    copy_bytes(part.data(), from, part.size());
    from += part.size();
  });
}

}  // namespace retinue
