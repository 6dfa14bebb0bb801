#include "collective/paths.h"

namespace retinue {

Steps take_path(Session& session, const Call& call, const Arrival& arrival) {
  if (call.pattern.result == Pattern::Result::kNothing) return {};
  if (session.size() == 1) {
    run_alone(call);
    return {};
  }
  const Path path = select_path(call, session.size(), arrival);
  if (has_slices(call, session.size(), path)) return reduce_in_slices(session, call, path);
  if (call.shape.kind == CollectiveKind::kAllReduceCoalesced) return reduce_coalesced(session, call, path);
  return exchange(session, call, path, arrival);
}

}  // namespace retinue
