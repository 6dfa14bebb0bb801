#include "store/find_value.h"

#include "retinue/base/error.h"

namespace retinue {

std::optional<std::string> find_value(Store& store, const std::string& key, std::chrono::nanoseconds patience) {
  if (!store.check({key}, Deadline::after(patience))) return std::nullopt;
  try {
    return store.get(key, Deadline::after(patience));
  } catch (const TimeoutError&) {
    return std::nullopt;  // It was deleted meanwhile.
  }
}

}  // namespace retinue
