#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "retinue/store/store.h"

namespace retinue {

/// What stands there now, if anything. Errors: the store's, after `patience`.
std::optional<std::string> find_value(Store& store, const std::string& key, std::chrono::nanoseconds patience);

}  // namespace retinue
