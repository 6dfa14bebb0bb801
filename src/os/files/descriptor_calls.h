#pragma once

#include <string_view>

#include "retinue/base/deadline.h"

namespace retinue {

/// Blocking: until the descriptor is ready for one of `events`, which are poll()'s, or has ended or failed. False when
/// the deadline passed. Errors: SystemError.
bool wait_ready(int fd, short events, Deadline deadline);

/// Blocking: until all is written. False and errno: it went wrong, maybe after a part.
bool write_all(int fd, std::string_view bytes);

}  // namespace retinue
