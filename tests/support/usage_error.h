#pragma once

#include <string>

#include "retinue/base/error.h"

namespace retinue::test {

/// The text of the UsageError that `call` throws.
template <class Call>
std::string usage_error_of(Call call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

}  // namespace retinue::test
