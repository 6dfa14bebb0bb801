#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "ipc/memory/process_slot.h"
#include "process/failure/error_file.h"
#include "process/logs/caller_rights.h"

namespace retinue {

/// A dead rank that a helper is to look at.
struct EndedRank {
  ProcessSlot* slot;
  std::string error_file;       ///< Empty: it has none.
  FileStamp error_file_before;  ///< When the rank was started.
};

/// Forks a child of the guardian that works for it; 0 in the child, -1: there is none.
pid_t fork_helper();

/// Whether a helper has something to do for the rank: its frames have no names, or it failed and has an error file.
bool needs_helper(const EndedRank& rank);

/// Forks a helper that, with no more rights than the caller has, reads the ranks' own error files into their crash
/// records, turns the records' frames into text, one after the other, writes the error files of those that could not do
/// so themselves and calls `write_files`; at last it calls `then`, and ends. Where several ranks have
/// the same file, their root cause is in it.
///
/// It may die without harm: stack_phase of the record that it was at is 1 then, and of those that it did not come to 0.
/// Returns its pid, 0 if it could not be forked.
pid_t start_helper(const std::vector<EndedRank>& ranks, const CallerRights& rights,
                   const std::function<void()>& write_files, const std::function<void()>& then);

/// The same for a program that is about to die of its own failure, which stands in `record`.
pid_t start_helper_for_program(CrashRecord& record, const std::string& error_file);

}  // namespace retinue
