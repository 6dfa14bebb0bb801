#include "process/guardian/start_request.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "ipc/memory/payload.h"
#include "os/files/environment.h"
#include "os/machine/cpus.h"
#include "process/failure/error_file.h"
#include "retinue/base/error.h"
#include "retinue/ipc/archive.h"

namespace retinue {
namespace {

/// A stored request's head and the archives behind it. Errors: UsageError if it is none.
std::pair<std::string_view, std::string_view> split(std::string_view stored) {
  std::uint64_t head_bytes = 0;
  if (stored.size() < sizeof head_bytes) throw UsageError("a start request is truncated: job memory was overwritten");
  std::memcpy(&head_bytes, stored.data(), sizeof head_bytes);
  stored.remove_prefix(sizeof head_bytes);
  if (stored.size() < head_bytes) throw UsageError("a start request is truncated: job memory was overwritten");
  return {stored.substr(0, head_bytes), stored.substr(head_bytes)};
}

}  // namespace

ProcessAttributes ProcessAttributes::of_this_thread(const ProcessStatus& status) {
  constexpr int kOctal = 8;
  ProcessAttributes now;
  now.environment = current_environment();
  char directory[PATH_MAX];
  if (getcwd(directory, sizeof directory) != nullptr) now.directory = directory;
  now.credentials = Credentials::of_this_thread(status);
  now.scheduling = Scheduling::of_this_thread();
  // It can only be read by setting it, which other threads would notice; the kernel also tells it.
  now.umask = static_cast<std::uint32_t>(status.number("Umask", kOctal));
  for (int which = 0; which < RLIMIT_NLIMITS; ++which) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource_t>(which), &limit) != 0) throw SystemError("getrlimit", errno);
    now.limits.emplace_back(limit.rlim_cur, limit.rlim_max);
  }
  now.cpus = allowed_cpus();
  return now;
}

void ProcessAttributes::enter() const {
  ::umask(umask);
  if (scheduling != Scheduling::of_this_thread()) scheduling.take();
  for (std::size_t which = 0; which < limits.size(); ++which) {
    const auto resource = static_cast<__rlimit_resource_t>(which);
    rlimit now{};
    getrlimit(resource, &now);
    const rlimit wanted{limits[which].first, limits[which].second};
    if (now.rlim_cur == wanted.rlim_cur && now.rlim_max == wanted.rlim_max) continue;
    if (setrlimit(resource, &wanted) != 0)
      throw SystemError("setting the caller's resource limit " + std::to_string(which), errno);
  }
  set_allowed_cpus(cpus);
}

void store_request(JobMemory& memory, ContextRecord& record, const StartRequest& request) {
  const std::string head = detail::encode_value(request).bytes;
  const std::uint64_t head_bytes = head.size();
  record.request =
      store_payload(memory, {{reinterpret_cast<const char*>(&head_bytes), sizeof head_bytes}, head, request.archives},
                    request.references, BlockUse::kRuntime);
  // The caller may die while its ranks still read it.
  memory.retain(record.request, kGuardianSlot);
  memory.release(record.request);
}

StartRequest load_request(const JobMemory& memory, const ContextRecord& record) {
  const std::string_view head = split(payload_bytes(memory, record.request)).first;
  StartRequest request;
  detail::decode_value(head, request);
  return request;
}

std::string error_file_of(const StartRequest& request, std::size_t rank) {
  std::string path;
  const std::string prefix = std::string(kErrorFileVariable) + "=";
  for (const std::string& variable : request.attributes.environment)
    if (variable.starts_with(prefix)) path = variable.substr(prefix.size());
  if (!request.logs.directory.empty()) path = request.logs.error_file_of(static_cast<int>(rank));
  const auto& own = request.ranks.at(rank).environment;
  if (const auto found = own.find(kErrorFileVariable); found != own.end()) path = found->second;
  if (path.empty() || path.starts_with('/')) return path;
  if (request.attributes.directory.empty() && !request.directory.starts_with('/')) return "";  // It was removed.
  return std::filesystem::path(request.attributes.directory) / request.directory / path;
}

std::string_view stored_archive(const JobMemory& memory, const ContextRecord& record, const ArchiveSlice& slice) {
  const std::string_view archives = split(payload_bytes(memory, record.request)).second;
  if (slice.offset > archives.size() || slice.bytes > archives.size() - slice.offset)
    throw UsageError("a start request refers to arguments beyond its end: job memory was overwritten");
  return archives.substr(slice.offset, slice.bytes);
}

}  // namespace retinue
