#pragma once

#include "collective/call/call.h"
#include "collective/call/select.h"
#include "collective/session/session.h"
#include "collective/session/steps.h"

/// What happens between the arrival of all members and the end of a call. Each path ends when the result is in this
/// member's buffer and no other member reads or writes its buffers any more. Paths that wait for others do so in Steps;
/// the call stays in place until their end.
namespace retinue {

/// All of it, by the path that the members' lines lead to.
Steps take_path(Session& session, const Call& call, const Arrival& arrival);

/// What a call comes to in a group of one.
void run_alone(const Call& call);

/// Of a path in rounds through private memory, `bytes` from each member. Errors: UsageError where it has more steps
/// than a call can count: on all members alike, so that the group stays in step.
void check_steps(const Call& call, std::size_t steps, std::size_t bytes);

/// Each taker takes its parts from all givers by itself.
Steps exchange(Session& session, const Call& call, Path path, const Arrival& arrival);

/// Where the others may stage what they give, as this member does: waits for them and takes from each as it comes.
/// Returns whether that was all; otherwise some give in another way, and all has to be taken anew.
bool take_in_arrival_order(Session& session, const Call& call);

/// all_reduce_coalesced of little data, or in job memory.
Steps reduce_coalesced(Session& session, const Call& call, Path path);
void run_alone_coalesced(const Call& call);

/// Whether the members share the work: in an all_reduce or reduce of much data, unless not one of a function's elements
/// fits a chunk.
bool has_slices(const Call& call, int ranks, Path path);

/// Each member reduces its slice for all takers.
Steps reduce_in_slices(Session& session, const Call& call, Path path);

}  // namespace retinue
