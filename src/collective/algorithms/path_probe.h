#pragma once

#include <functional>

#include "collective/session/session.h"
#include "retinue/collective/call.h"

namespace retinue {

/// Measures where this group's collectives should change their path, if that is its task and its members have a CPU
/// each, and keeps the result for the job and for later ones. Called by all members, before any call of the user's.
/// `run`: makes a collective. Errors: those of collectives.
/// Cost: some milliseconds, once on a machine.
void measure_paths(Session& session, const std::function<void(const CollectiveCall&)>& run);

}  // namespace retinue
