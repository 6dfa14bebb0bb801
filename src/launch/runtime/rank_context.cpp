#include "retinue/launch/rank_context.h"

#include <algorithm>

#include "ipc/memory/context_table.h"
#include "os/machine/cpus.h"

namespace retinue {

RankContext::RankContext(const std::shared_ptr<JobMemory>& memory, std::uint32_t slot)
    : world_(world_of(memory, slot)),
      rank_(process_slot(*memory, slot).rank),
      local_rank_(process_slot(*memory, slot).local_rank) {}

int RankContext::cpus_per_rank() const {
  const std::int32_t share = process_slot(*memory(), world_.process_slots[static_cast<std::size_t>(rank_)]).cpu_share;
  return share > 0 ? share : std::max(1, static_cast<int>(allowed_cpus().size()) / local_world_size());
}

}  // namespace retinue
