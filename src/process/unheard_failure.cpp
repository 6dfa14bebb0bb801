#include "process/unheard_failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "process/console.h"
#include "process/failure_text.h"
#include "process/start_request.h"

namespace retinue {

void tell_unheard_failure(const JobMemory& memory, ContextRecord& record, std::chrono::milliseconds patience) {
  std::vector<RankOutcome> outcomes;
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank)
    outcomes.push_back(outcome_of(process_slot(memory, record.slots[rank])));
  // What a rank threw when it was told to end, or because another one was, is no failure of its own.
  const auto failed_by_itself = [](const RankOutcome& outcome) {
    const bool was_stopped = outcome.stopped.count() != 0 && outcome.ended >= outcome.stopped;
    return is_failure(outcome) && !outcome.consequence && !was_stopped;
  };
  if (!std::ranges::any_of(outcomes, failed_by_itself) || record.heard.exchange(1) != 0) return;
  memory.header().unheard_failures.fetch_add(1);
  process_slot(memory, record.parent_slot).unheard_failures.fetch_add(1);
  show_on(STDERR_FILENO,
          fmt::format("retinue: ranks failed (started as \"{}\"), and nobody asked how they ended by join(), wait() or "
                      "status():\n{}",
                      load_request(memory, record).name, failure_text(outcomes)),
          patience);
}

}  // namespace retinue
