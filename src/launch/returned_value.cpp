#include "launch/returned_value.h"

#include <algorithm>
#include <cstring>

namespace retinue {

void store_returned(JobMemory& memory, ProcessSlot& slot, const detail::ReturnedValue& value) {
  if (value.type.empty()) return;
  // The type with its final zero, then the archive.
  const std::size_t type_bytes = value.type.size() + 1;
  slot.returned = memory.allocate(type_bytes + value.archive.size());
  char* const to = memory.at<char>(slot.returned.offset);
  std::memcpy(to, value.type.c_str(), type_bytes);
  std::copy(value.archive.begin(), value.archive.end(), to + type_bytes);
  slot.has_returned.store(1, std::memory_order_release);  // Pairs with load_returned().
}

detail::ReturnedValue load_returned(const JobMemory& memory, const ProcessSlot& slot) {
  if (slot.has_returned.load(std::memory_order_acquire) == 0) return {};
  const char* const from = memory.at<char>(slot.returned.offset);
  detail::ReturnedValue value{from, {}};
  const std::size_t type_bytes = value.type.size() + 1;
  value.archive.assign(from + type_bytes, slot.returned.bytes - type_bytes);
  return value;
}

}  // namespace retinue
