#pragma once

#include "retinue/base/error.h"

namespace retinue {

/// Job memory was made by a version of Retinue that this one can't share it with.
class OtherVersion final : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace retinue
