#include "process/observe/found_job.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <utility>

#include "base/version.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/job_name.h"
#include "os/files/descriptor_calls.h"
#include "os/process/process_calls.h"
#include "os/process/process_look.h"
#include "os/process/process_stat.h"
#include "os/sockets/control_socket.h"
#include "os/sockets/local_socket.h"
#include "process/observe/job_socket_protocol.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);
/// Who connects and is slow to ask may have to make room for others, and comes again.
constexpr int kTries = 8;

/// "retinue/<uid>/<id>"; the uid that the name claims.
bool parse_job_socket(const std::string& socket_name, FoundJob& job) {
  const std::size_t begin = socket_name.find('/') + 1;
  const std::size_t end = socket_name.find('/', begin);
  if (end == std::string::npos) return false;
  const char* const last = socket_name.data() + end;
  if (std::from_chars(socket_name.data() + begin, last, job.user).ptr != last) return false;
  job.socket_name = socket_name;
  job.id = socket_name.substr(end + 1);
  return !job.id.empty() && job.id.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Whoever sent the descriptor could make what is not sealed smaller under our eyes, which would kill us.
void check_seals(int memfd) {
  const int seals = fcntl(memfd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw UsageError("its guardian sent something other than job memory");
}

void check_namespace(const FoundJob& job) {
  const pid_t pid = process_slot(*job.memory, kGuardianSlot).pid.load(std::memory_order_relaxed);
  if (job.guardian == pid) return;
  throw UsageError(
      "it runs in another PID namespace (a container's), where its processes have other pids: run "
      "this command there");
}

std::string silence_of(pid_t guardian) {
  const char state = process_stat(guardian).value_or(ProcessStat()).state;
  const bool is_stopped = state == 'T' || state == 't';
  return is_stopped ? fmt::format("its guardian is stopped: kill -CONT {}", guardian)
                    : fmt::format("its guardian (pid {}) does not answer", guardian);
}

/// None: the job is gone, or lets nobody of this user in.
/// Errors: as of ask_job_socket(); TimeoutError when its guardian is silent.
std::optional<JobSocketReply> answer_to(FoundJob& job, std::uint32_t kind, const std::vector<int>& descriptors,
                                        std::vector<FileDescriptor>& received) {
  for (int i = 0; i < kTries; ++i) {
    const FileDescriptor socket = ask_job_socket(job, kind, descriptors);
    if (!socket) break;
    if (!wait_ready(socket.get(), POLLIN, Deadline::after(kPatience))) throw TimeoutError(silence_of(job.guardian));
    JobSocketReply answer;
    if (receive_message(socket.get(), &answer, sizeof answer, received) != 0) return answer;
  }
  return std::nullopt;
}

/// What the guardian gives for `kind`, `count` descriptors of which the first is job memory's; none: the job is gone.
std::vector<FileDescriptor> descriptors_of(FoundJob& job, std::uint32_t kind, std::size_t count) {
  std::vector<FileDescriptor> descriptors;
  const auto answer = answer_to(job, kind, {}, descriptors);
  if (!answer) return {};
  if (answer->version != kJobSocketVersion || answer->refused != 0 || descriptors.size() != count) {
    if (kind != JobSocketRequest::kLook) descriptors_of(job, JobSocketRequest::kLook, 1);  // The memory says which.
    throw UsageError(
        fmt::format("it was made by another version of Retinue than {}: use the `retinue` of that version", version()));
  }
  check_seals(descriptors.front().get());
  job.memory = JobMemory::attach(descriptors.front().get());
  check_namespace(job);
  return descriptors;
}

}  // namespace

std::string FoundJob::name() const {
  const std::string name = memory ? printable(job_name(memory->header())) : "";
  return name.empty() ? id : name;
}

pid_t FoundJob::program() const {
  return memory ? process_slot(*memory, kProgramSlot).pid.load(std::memory_order_relaxed) : 0;
}

std::vector<FoundJob> find_jobs(WhoseJobs whose) {
  std::vector<FoundJob> jobs;
  for (const std::string& socket_name :
       listening_names(whose == WhoseJobs::kAll ? "retinue/" : job_socket_prefix(geteuid()))) {
    FoundJob job;
    if (!parse_job_socket(socket_name, job)) continue;
    try {
      descriptors_of(job, JobSocketRequest::kLook, 1);
      if (!job.memory) continue;
    } catch (const Error& error) {
      job.problem = error.what();
      job.memory.reset();
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

FileDescriptor ask_job_socket(FoundJob& job, std::uint32_t kind, const std::vector<int>& descriptors) {
  for (int i = 0; i < kTries; ++i) {
    auto socket = connect_local(job.socket_name, kPatience);
    if (!socket) break;
    const SocketPeer peer = peer_of(socket->get());
    if (peer.uid != job.user)
      throw UsageError(fmt::format("it belongs to user {}, but its name says another user: do not use it", peer.uid));
    job.guardian = peer.pid;
    const JobSocketRequest request{.kind = kind};
    try {
      send_message(socket->get(), &request, sizeof request, descriptors);
      return std::move(*socket);
    } catch (const Closed&) {
      continue;
    }
  }
  return {};
}

RankDescriptors ask_for_rank_descriptors(std::uint64_t job_id) {
  FoundJob job;
  job.user = geteuid();
  job.socket_name = job_socket_name(job.user, job_id);
  std::vector<FileDescriptor> descriptors = descriptors_of(job, JobSocketRequest::kRank, 2);
  if (descriptors.empty()) throw Error("it has ended, belongs to another user, or is in another network namespace");
  return {job.memory, std::move(descriptors[1])};
}

std::uint32_t ask_for_slot(FoundJob& job) {
  const FileDescriptor self = open_pidfd(getpid());
  std::vector<FileDescriptor> none;
  const auto answer = answer_to(job, JobSocketRequest::kJoin, {self.get()}, none);
  if (!answer) throw Error(fmt::format("job {} has ended", job.id));
  if (answer->refused != 0)
    throw Error(fmt::format("job {} accepts no more guests: it has as many guests or processes as it can", job.id));
  return answer->slot;
}

FileDescriptor pause_deadlines(FoundJob& job) {
  FileDescriptor socket = ask_job_socket(job, JobSocketRequest::kDebug);
  if (socket && !wait_ready(socket.get(), POLLIN, Deadline::after(kPatience)))
    throw TimeoutError(silence_of(job.guardian));
  JobSocketReply answer;
  std::vector<FileDescriptor> none;
  if (!socket || receive_message(socket.get(), &answer, sizeof answer, none) == 0 || answer.refused != 0)
    throw Error("the job has ended, or its guardian accepts no more debuggers");
  return socket;
}

bool stop_job(FoundJob& job, std::chrono::milliseconds timeout) {
  const FileDescriptor socket = ask_job_socket(job, JobSocketRequest::kStop);
  // The answer, or the end of the guardian, which leaves no rank.
  return !socket || wait_ready(socket.get(), POLLIN, Deadline::after(timeout));
}

}  // namespace retinue
