#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ipc/memory/process_slot.h"
#include "retinue/process/failure.h"

namespace retinue {

/// What the process table knows of a rank.
RankOutcome outcome_of(const ProcessSlot& slot);

/// The end to which a process's complete crash record leads.
RankOutcome outcome_of_crash(const CrashRecord& crash);

/// Whether the rank failed, by itself or as a consequence; being stopped is none.
bool is_failure(const RankOutcome& outcome);

/// Index of the outcome that explains the others: failures of their own come before consequences, those before ranks
/// that were stopped; among equals the earliest nanosecond. `outcomes` is not empty.
std::size_t root_cause(std::span<const RankOutcome> outcomes);

/// One line on how a rank ended: "raised std::runtime_error: message", "exited with code 3".
std::string ending_text(const RankOutcome& outcome);

/// The root cause with its stack, then what became of every other rank; fits one screen. `name`: how the root cause is
/// called; empty: by its rank.
std::string failure_text(std::span<const RankOutcome> outcomes, std::string_view name = {});

/// Throws ProcessRaisedException or ProcessExitedException if any rank failed. Ranks that were only stopped are none.
void throw_root_cause(std::vector<RankOutcome> outcomes);

}  // namespace retinue
