#include "process/guardian/unretrieved_failure.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <vector>

#include "process/failure/failure_text.h"
#include "process/guardian/start_request.h"
#include "process/logs/console.h"

namespace retinue {

void report_unretrieved_failure(const JobMemory& memory, ContextRecord& record,
                                std::chrono::milliseconds patience) try {
  const auto index = static_cast<std::uint32_t>(&record - memory.header().contexts);
  std::vector<RankOutcome> outcomes;
  for (std::uint32_t rank = 0; rank < record.nprocs; ++rank)
    if (const ProcessSlot& slot = process_slot(memory, record.slots[rank]); slot.context == index)
      outcomes.push_back(outcome_of(slot));
  // What a rank threw when it was told to end, or because another one was, is no failure of its own.
  const auto failed_by_itself = [](const RankOutcome& outcome) {
    const bool was_stopped = outcome.stopped.count() != 0 && outcome.ended >= outcome.stopped;
    return is_failure(outcome) && !outcome.consequence && !was_stopped;
  };
  if (!std::ranges::any_of(outcomes, failed_by_itself) || record.retrieved.exchange(1) != 0) return;
  ProcessSlot& starter = process_slot(memory, record.parent_slot);
  starter.unretrieved_failures.fetch_add(1);
  // The failure of who started it, or its being stopped, is told and counted by itself.
  const bool has_failed = starter.state.load() == ProcessState::kDead && starter.exit_status.load() != 0;
  if (!has_failed) memory.header().unretrieved_failures.fetch_add(1);
  show_on(STDERR_FILENO,
          fmt::format("retinue: ranks failed (started as \"{}\"), and no call of join(), wait() or status() retrieved "
                      "the failure:\n{}",
                      load_request(memory, record).name, failure_text(outcomes)),
          patience);
} catch (const std::exception&) {
  // Somebody was killed while it freed the record, or there is no memory to say it.
}

void report_unretrieved_failures(const JobMemory& memory, const std::bitset<kMaxProcesses>& starters,
                                 std::chrono::milliseconds patience) {
  for (std::uint32_t index = 0; index < memory.header().context_end.load(std::memory_order_acquire); ++index) {
    ContextRecord& record = context_record(memory, index);
    if (record.state.load(std::memory_order_acquire) == ContextRecord::kEnded && starters.test(record.parent_slot))
      report_unretrieved_failure(memory, record, patience);
  }
}

}  // namespace retinue
