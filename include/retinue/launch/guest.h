#pragma once

#include <string>

namespace retinue {

/// Makes this process a guest of a job, to the end of the process: it uses the job's queues, pipes and locks as ranks
/// do, and finds them by published(). The job is named by its id or its name, as `retinue ps` and Runtime::job_id()
/// have them; it must be this user's, in this network and PID namespace. Nobody stops a guest with the job, and no
/// report speaks of it; what it held when it ends, also by a kill, goes back to the job.
///
/// Blocking: at most some seconds, where the job's guardian does not answer.
/// Threads: called by the main thread.
/// Errors: UsageError when no job, or several ones, have that name, in a process that has a Runtime or is a guest
/// already, and for a job of another version of Retinue; TimeoutError when its guardian does not answer; Error when it
/// ends just now, or has 256 guests; SystemError. After the job's end: what waits or puts throws SystemError.
void join_job(const std::string& job);

}  // namespace retinue
