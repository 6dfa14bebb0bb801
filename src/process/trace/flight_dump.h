#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "process/trace/merged_calls.h"

namespace retinue {

/// What the ranks of a context recorded, as PyTorch's flight recorder dumps it (version 2.10), by rank: pickles that
/// `torchfrtrace` reads from files "rank_<rank>" of a folder. Every rank of `calls` has one.
///
/// What that tool cannot tell apart is left out, or written so that it can: collectives that one member keeps no more
/// and that all others have done; messages that match_messages() leaves out, while the others have a group for each
/// way. Calls that had failed, or had not ended, are "started". Cost: some 200 bytes for each call.
std::map<int, std::string> flight_dumps(const MergedCalls& calls, std::uint32_t context);

}  // namespace retinue
