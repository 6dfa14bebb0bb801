#include "collective/algorithms/paths.h"

#include <fmt/format.h>

#include "retinue/base/error.h"

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

void check_steps(const Call& call, std::size_t steps, std::size_t bytes) {
  if (steps >= std::size_t{1} << kStepBits)
    throw UsageError(fmt::format("{}: {} bytes from private memory are too many for one call; use job memory",
                                 name_of(call.shape.kind), bytes));
}

}  // namespace retinue
