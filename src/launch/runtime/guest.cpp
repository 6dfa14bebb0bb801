#include "retinue/launch/guest.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "ipc/memory/process_table.h"
#include "launch/runtime/guest_state.h"
#include "process/observe/found_job.h"
#include "retinue/base/error.h"
#include "retinue/launch/runtime.h"

namespace retinue {
namespace {

/// To the end of the process: the main thread's life lock stays in the kernel's robust list.
std::shared_ptr<JobMemory>& visited() {
  static auto* const memory = new std::shared_ptr<JobMemory>;
  return *memory;
}

void check_process() {
  if (Runtime::current_or_null() != nullptr)
    throw UsageError(
        "join_job: this process has a Runtime and therefore its own job; call join_job in a process without a Runtime");
  if (is_guest()) throw UsageError("join_job: this process is already a guest of a job");
  if (syscall(SYS_gettid) != getpid()) throw UsageError("join_job: only the main thread can call it");
}

FoundJob find_job(const std::string& name) {
  std::vector<FoundJob> jobs = find_jobs(WhoseJobs::kOwn);
  std::erase_if(jobs, [&](const FoundJob& job) { return job.id != name && job.name() != name; });
  if (jobs.empty())
    throw UsageError(fmt::format(
        "join_job: no job of this user has the name or the id '{}'; `retinue ps` lists the running jobs", name));
  if (jobs.size() > 1)
    throw UsageError(fmt::format("join_job: {} jobs have the name '{}'; give the id of one of them: {} or {}",
                                 jobs.size(), name, jobs[0].id, jobs[1].id));
  if (!jobs.front().memory)
    throw UsageError(fmt::format("join_job: job '{}' cannot be joined: {}", name, jobs.front().problem));
  return std::move(jobs.front());
}

}  // namespace

bool is_guest() {
  return visited() != nullptr;
}

void join_job(const std::string& name) {
  check_process();
  FoundJob job = find_job(name);
  enter_guest_slot(*job.memory, ask_for_slot(job));
  visited() = job.memory;
  JobMemory::set_current(job.memory);
}

}  // namespace retinue
