#pragma once

namespace retinue {

/// Whether this process has joined a job as its guest.
bool is_guest();

}  // namespace retinue
