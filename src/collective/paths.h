#pragma once

#include "collective/call.h"
#include "collective/select.h"
#include "collective/session.h"

/// What happens between the arrival of all members and the end of a call. Each path ends when the result is in this
/// member's buffer and no other member reads or writes its buffers any more.
namespace retinue {

void run_all_reduce(Session& session, const Call& call, Path path);
void run_broadcast(Session& session, const Call& call, Path path);
void run_all_gather(Session& session, const Call& call, Path path);

}  // namespace retinue
