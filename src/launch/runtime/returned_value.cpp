#include "launch/runtime/returned_value.h"

#include <string_view>

#include "ipc/memory/payload.h"

namespace retinue {

void store_returned(JobMemory& memory, ProcessSlot& slot, const detail::ReturnedValue& value) {
  if (value.type.empty()) return;
  // The type with its final zero, then the archive.
  const std::string_view type(value.type.c_str(), value.type.size() + 1);
  slot.returned = store_payload(memory, {type, value.value.bytes}, value.value.references, BlockUse::kRuntime);
  slot.has_returned.store(1, std::memory_order_release);  // Pairs with load_returned().
}

detail::ReturnedValue load_returned(const std::shared_ptr<JobMemory>& memory, const ProcessSlot& slot) {
  if (slot.has_returned.load(std::memory_order_acquire) == 0) return {};
  const std::string_view stored = payload_bytes(*memory, slot.returned);
  const std::size_t type_bytes = stored.find('\0');
  return {std::string(stored.substr(0, type_bytes)),
          {std::string(stored.substr(type_bytes + 1)), payload_references(memory, slot.returned)}};
}

}  // namespace retinue
