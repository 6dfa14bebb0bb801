#pragma once

#include <bitset>
#include <chrono>

#include "ipc/memory/context_table.h"

namespace retinue {

/// Says on standard error how the context, which has ended, failed; nothing where it did not, or where somebody was
/// told. Blocking: at most `patience`, while nobody reads there.
void report_unretrieved_failure(const JobMemory& memory, ContextRecord& record, std::chrono::milliseconds patience);

/// The same of all that `starters`, slots of processes that end, had started: nobody can ask any more.
void report_unretrieved_failures(const JobMemory& memory, const std::bitset<kMaxProcesses>& starters,
                                 std::chrono::milliseconds patience);

}  // namespace retinue
