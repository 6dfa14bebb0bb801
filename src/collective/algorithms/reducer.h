#pragma once

#include "collective/call/call.h"
#include "collective/session/session.h"

namespace retinue {

/// The same by the function of the program. Fails the call where it throws.
void reduce_by_function(Session& session, const Call& call, int sources, ReduceDestinations destinations,
                        std::size_t count);

/// Reduces `bytes` bytes of the first `sources` arrays of scratch's.
inline void reduce_arrays(Session& session, const Call& call, int sources, ReduceDestinations destinations,
                          std::size_t bytes) {
  if (call.what.function != nullptr)
    return reduce_by_function(session, call, sources, destinations, bytes / call.element_bytes);
  kernels().get(call.shape.dtype, call.shape.op)(session.reduce_sources(sources, call.shape.op), destinations,
                                                 bytes / call.element_bytes);
}

}  // namespace retinue
