#include "retinue/launch/detail/entry.h"

#include <fmt/format.h>

#include "os/process/loaded_objects.h"
#include "retinue/base/error.h"

namespace retinue::detail {

EntryKey key_of(EntryThunk thunk, const char* type) {
  const auto place = place_of_code(reinterpret_cast<std::uintptr_t>(thunk));
  if (!place) throw UsageError(fmt::format("the function to start is not in a loaded program or library: {}", type));
  return {place->object_id, place->object_path, place->offset, type};
}

EntryThunk find_entry(const EntryKey& key) {
  const auto address = address_of_code(key.object_id, key.offset);
  if (!address)
    throw UsageError(
        fmt::format("this rank has not loaded {} (build-id {}), which contains the function to start: it was loaded "
                    "after the Runtime was made, or the file has changed since; load it before the Runtime, or use "
                    "StartMethod::kFork; function: {}",
                    key.object_path, key.object_id, key.type));
  return reinterpret_cast<EntryThunk>(*address);
}

}  // namespace retinue::detail
