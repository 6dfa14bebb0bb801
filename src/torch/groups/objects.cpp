#include "retinue/torch/objects.h"

#include <c10/util/StringUtil.h>

#include "torch/backend/tensor_backend.h"
#include "torch/groups/make_group.h"

namespace retinue::detail {
bool use_communicator(std::string_view call, const ProcessGroup& group,
                      const std::function<void(Communicator&)>& body) {
  c10d::ProcessGroup& ranks = checked_group(call, group);
  TensorBackend* const backend = TensorBackend::of(ranks);
  if (backend == nullptr)
    throw UsageError(c10::str(call, ": the group's backend is \"", ranks.getBackendName(),
                              "\", but only groups with Retinue's backend \"shm\" or \"gloo\" can send objects"));
  return backend->use_communicator(body);
}

void check_rank(std::string_view call, const ProcessGroup& group, int rank) {
  const int size = checked_group(call, group).getSize();
  if (rank < 0 || rank >= size)
    throw UsageError(c10::str(call, ": rank ", rank, " is outside of the group's [0, ", size, ")"));
}

void check_peer(std::string_view call, const ProcessGroup& group, int rank) {
  const int own = checked_group(call, group).getRank();
  if (rank == own || checked_group(call, group).getSize() == 1)
    throw UsageError(c10::str(call, ": an object can only be sent to another rank; this is rank ", own, " of ",
                              checked_group(call, group).getSize()));
  if (rank != kAnySource) check_rank(call, group, rank);
}

}  // namespace retinue::detail
