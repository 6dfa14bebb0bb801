#pragma once

#include "os/credentials.h"

namespace retinue {

/// What the process that asked for a start may do, and what the guardian may, which works for it: what a request names,
/// as files, is done with the requester's rights.
struct RequestersRights {
  Credentials requester;
  Credentials guardian;

  bool differ() const { return requester != guardian; }
  /// In a helper of the guardian's, whose memory it has: others of the requester's user may not look into it.
  void take() const {
    Credentials hidden = requester;
    hidden.dumpable = 0;
    hidden.take(guardian);
  }
};

}  // namespace retinue
