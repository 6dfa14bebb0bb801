#pragma once

#include "collective/call.h"
#include "collective/select.h"
#include "collective/session.h"

/// What happens between the arrival of all members and the end of a call. Each path ends when the result is in this
/// member's buffer and no other member reads or writes its buffers any more.
namespace retinue {

/// What a call comes to in a group of one.
void run_alone(const Call& call);

/// Each taker takes its parts from all givers by itself.
void exchange(Session& session, const Call& call, Path path, const Arrival& arrival);

/// Each member reduces its slice for all takers: all_reduce and reduce of much data.
void reduce_in_slices(Session& session, const Call& call, Path path);

}  // namespace retinue
