#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "python/extension/objects.h"
#include "retinue/ipc/shared_block.h"
#include "retinue/launch/rank_context.h"

namespace retinue::python {

/// Sets what runs a rank's work in Python: `runner(rank, cpus, pickle, blocks)`, with the number of CPUs that the rank
/// has, bytes, and a list of the Blocks that they refer to. It returns None, or an exit code, or the type, message and
/// traceback of an exception, a tuple of three str.
void set_runner(Reference runner);

/// The function that ranks of Python programs run. Errors: what the runner returned.
void run_in_python(RankContext& context, std::string_view pickle, const std::vector<SharedBlock>& blocks);

/// Makes this process what its environment says, the guardian or a rank of a job, and does not return.
/// `arguments` are the process's own. Errors: UsageError if the environment says nothing.
[[noreturn]] void serve(std::vector<std::string> arguments);

}  // namespace retinue::python
