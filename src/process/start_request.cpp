#include "process/start_request.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "process/error_file.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

/// The umask can only be read by setting it, which other threads would notice; the kernel also tells it.
std::uint32_t current_umask() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "Umask:" && status >> word) return static_cast<std::uint32_t>(std::stoul(word, nullptr, 8));
  return 022;
}

}  // namespace

Surroundings Surroundings::of_this_process() {
  Surroundings now;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    now.environment.emplace_back(*variable);
  char directory[PATH_MAX];
  // A directory that was removed has no path any more, but can still be entered by this one.
  now.directory = getcwd(directory, sizeof directory) != nullptr ? directory : fmt::format("/proc/{}/cwd", getpid());
  now.umask = current_umask();
  for (int which = 0; which < RLIMIT_NLIMITS; ++which) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource_t>(which), &limit) != 0) throw SystemError("getrlimit", errno);
    now.limits.emplace_back(limit.rlim_cur, limit.rlim_max);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (std::uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) now.cpus.push_back(cpu);
  return now;
}

void Surroundings::apply() const {
  clearenv();
  for (const std::string& variable : environment) {
    const auto equals = variable.find('=');
    if (equals == std::string::npos) continue;
    setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  if (chdir(directory.c_str()) != 0) throw SystemError("entering the caller's directory " + directory, errno);
  ::umask(umask);
  for (std::size_t which = 0; which < limits.size(); ++which) {
    const auto resource = static_cast<__rlimit_resource_t>(which);
    rlimit now{};
    getrlimit(resource, &now);
    const rlimit wanted{limits[which].first, limits[which].second};
    if (now.rlim_cur == wanted.rlim_cur && now.rlim_max == wanted.rlim_max) continue;
    if (setrlimit(resource, &wanted) != 0)
      throw SystemError("setting the caller's resource limit " + std::to_string(which), errno);
  }
  if (cpus.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const std::uint32_t cpu : cpus) CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) throw SystemError("setting the caller's CPU affinity", errno);
}

void store_request(JobMemory& memory, ContextRecord& record, const StartRequest& request) {
  std::ostringstream stream;
  cereal::BinaryOutputArchive output(stream);
  output(request);
  const std::string bytes = std::move(stream).str();
  record.request = memory.allocate(bytes.size());
  std::memcpy(memory.at(record.request.offset), bytes.data(), bytes.size());
  // The requester may die while its ranks still read it.
  memory.retain(record.request, kGuardianSlot);
  memory.release(record.request);
}

StartRequest load_request(const JobMemory& memory, const ContextRecord& record) {
  std::istringstream stream(std::string(memory.at<char>(record.request.offset), record.request.bytes));
  StartRequest request;
  cereal::BinaryInputArchive input(stream);
  input(request);
  return request;
}

std::string error_file_of(const StartRequest& request, std::size_t rank) {
  std::string path;
  const std::string prefix = std::string(kErrorFileVariable) + "=";
  for (const std::string& variable : request.surroundings.environment)
    if (variable.starts_with(prefix)) path = variable.substr(prefix.size());
  if (!request.logs.directory.empty()) path = request.logs.error_file_of(static_cast<int>(rank));
  const auto& own = request.ranks.at(rank).environment;
  if (const auto found = own.find(kErrorFileVariable); found != own.end()) path = found->second;
  return path.empty() || path.starts_with('/') ? path : request.surroundings.directory + "/" + path;
}

}  // namespace retinue
