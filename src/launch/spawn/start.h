#pragma once

#include <memory>
#include <string>

#include "launch/spawn/process_context_impl.h"
#include "process/guardian/start_request.h"
#include "retinue/launch/detail/entry.h"
#include "retinue/launch/options.h"
#include "retinue/launch/process_context.h"

namespace retinue {

/// Prepares the logs that `options` ask for, reserves a context, stores the request, and tells the guardian.
/// Errors: UsageError for log options that cannot be, and in a daemonic rank; SystemError.
std::unique_ptr<ProcessContext::Impl> submit(StartRequest& request, const StartOptions& options);

/// Starts the one rank of a Process, whose failure is to be written to standard error. `sentinel` is the write end of a
/// pipe that the guardian holds until the rank's end is known; it stays the caller's, too. Errors: as spawn.
ProcessContext start_one(const StartOptions& options, const detail::EntryKey& entry, const detail::Encoded& arguments,
                         int sentinel);

}  // namespace retinue
