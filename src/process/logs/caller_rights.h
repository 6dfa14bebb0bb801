#pragma once

#include "os/process/credentials.h"

namespace retinue {

/// What the process that asked for a start may do, and what the guardian may, which works for it: what a request names,
/// as files, is done with the caller's rights.
struct CallerRights {
  Credentials caller;
  Credentials guardian;

  bool differ() const { return caller != guardian; }
  /// In a helper of the guardian's, whose memory it has: others of the caller's user may not look into it.
  void take() const {
    Credentials hidden = caller;
    hidden.dumpable = 0;
    hidden.take(guardian);
  }
};

}  // namespace retinue
