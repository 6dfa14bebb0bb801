#pragma once

#include <string>

namespace retinue {

/// Makes this process a guest of a job until the process ends. A guest uses the job's queues, pipes and locks as ranks
/// do, and finds them by published(). `job` is the job's id or name, as `retinue ps` and Runtime::job_id() report them.
/// The job must belong to this user and be in this network and PID namespace. The job doesn't stop its guests when it
/// ends, and its reports don't mention them. When a guest ends, even if it is killed, what it held returns to the job.
///
/// Blocking: at most some seconds, if the job's guardian doesn't answer.
/// Threads: called by the main thread.
/// Errors: UsageError if no job or several jobs have that name, if this process has a Runtime or is already a guest, or
/// if the job uses another version of Retinue; TimeoutError if its guardian doesn't answer; Error if the job is just
/// ending or has 256 guests; SystemError. After the job's end, functions that wait or put throw SystemError.
void join_job(const std::string& job);

}  // namespace retinue
