#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "os/files/file_descriptor.h"
#include "retinue/ipc/job_memory.h"

namespace retinue {

/// A job that runs on this machine, seen from outside: found by its guardian's socket, read in its own memory.
struct FoundJob {
  std::string socket_name;  ///< Its socket's name.
  std::string id;           ///< Hexadecimal digits.
  uid_t user = 0;
  pid_t guardian = 0;
  std::shared_ptr<JobMemory> memory;  ///< None where there is a problem.
  std::string problem;                ///< Why nothing more is known of it.

  std::string name() const;
  pid_t program() const;
};

enum class WhoseJobs { kOwn, kAll };

/// The jobs of this user, or of all, that were made in this network namespace. Only root is let into others'.
/// Blocking: at most 2 s for each job whose guardian does not answer.
std::vector<FoundJob> find_jobs(WhoseJobs whose);

/// What a program below a rank of the job has where a launcher closed its descriptors.
struct RankDescriptors {
  std::shared_ptr<JobMemory> memory;
  FileDescriptor control_send;
};
/// Asks the guardian of this user's job `job_id` for them. Blocking: at most 2 s, where it does not answer.
/// Errors: Error, which says why: the job is gone, is another user's, or in another network or PID namespace.
RankDescriptors ask_for_rank_descriptors(std::uint64_t job_id);

/// Connects to a job's guardian and asks it for `kind`, a JobSocketRequest::Kind. None: the job is gone.
/// Errors: Error when it is another's who only has its name; SystemError; TimeoutError.
FileDescriptor ask_job_socket(FoundJob& job, std::uint32_t kind, const std::vector<int>& descriptors = {});

/// A process slot of the job for this process, as its guest, to its end.
/// Errors: as of ask_job_socket(); Error when the job is gone, or lets no more guests in.
std::uint32_t ask_for_slot(FoundJob& job);

/// Lets the job's deadlines pause until the returned connection is closed, also by the end of whoever has it.
/// Errors: as of ask_job_socket(); Error when the job is gone or too many debug it.
FileDescriptor pause_deadlines(FoundJob& job);

/// Asks for the stop of all ranks and waits until none is left, at most `timeout`. Returns whether that is so.
/// Errors: as of ask_job_socket().
bool stop_job(FoundJob& job, std::chrono::milliseconds timeout);

}  // namespace retinue
