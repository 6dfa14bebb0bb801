#include "retinue/launch/rank_context.h"

#include <algorithm>

#include "ipc/context_table.h"
#include "os/process_calls.h"

namespace retinue {

RankContext::RankContext(const std::shared_ptr<JobMemory>& memory, std::uint32_t slot)
    : world_(world_of(memory, slot)),
      rank_(process_slot(*memory, slot).rank),
      local_rank_(process_slot(*memory, slot).local_rank) {}

int RankContext::cpus_per_rank() const {
  return std::max(1, count_allowed_cpus() / local_world_size());
}

}  // namespace retinue
