#pragma once

#include <string>

#include "process/trace/merged_calls.h"

namespace retinue {

/// The calls as a trace in Chrome's JSON format, which Perfetto (ui.perfetto.dev) and chrome://tracing show: a process
/// for each recording, a track for each group, one or more for its messages, an event for each call, and inside it one
/// for the time in which it waited for other members.
///
/// Calls that had failed, or had not ended when they were read, say so in `state`; the latter last until then.
/// Cost: 2 us, and some 400 bytes, for each call.
std::string chrome_trace(const MergedCalls& calls);

}  // namespace retinue
