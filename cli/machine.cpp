#include "machine.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <tuple>
#include <utility>

#include "os/files/kernel_files.h"
#include "os/machine/cgroups.h"
#include "os/machine/cpus.h"
#include "usable_devices.h"

namespace retinue {
namespace {

/// The smallest limit of the process's cgroups.
template <class Limit>
std::optional<std::uint64_t> cgroup_limit(const char* controller, Limit&& limit_of) {
  std::optional<std::uint64_t> smallest;
  for (const Cgroup& cgroup : own_cgroups(controller))
    if (const auto limit = limit_of(cgroup)) smallest = std::min<std::uint64_t>(smallest.value_or(*limit), *limit);
  return smallest;
}

/// "always [madvise] never": madvise.
std::string chosen_word(const std::string& path) {
  const std::string line = first_line_of(path).value_or("");
  const auto open = line.find('[');
  const auto close = line.find(']');
  return open == std::string::npos || close == std::string::npos ? "" : line.substr(open + 1, close - open - 1);
}

std::pair<std::uint64_t, std::uint64_t> limit_of(__rlimit_resource_t which) {
  rlimit limit{};
  getrlimit(which, &limit);
  const auto value = [](rlim_t bound) { return bound == RLIM_INFINITY ? Machine::kUnlimited : std::uint64_t{bound}; };
  return {value(limit.rlim_cur), value(limit.rlim_max)};
}

/// 0 for a call that is there: those that are tried with senseless arguments answer EINVAL then.
int error_of(long result) {
  if (result >= 0) close(static_cast<int>(result));
  return result >= 0 || errno == EINVAL ? 0 : errno;
}

std::map<std::string, int> try_calls() {
  constexpr long kFutexWaitv = 449;
  return {{"pidfd_open", error_of(syscall(SYS_pidfd_open, getpid(), 0))},
          {"memfd_create", error_of(memfd_create("retinue-doctor", MFD_CLOEXEC))},
          {"futex_waitv", error_of(syscall(kFutexWaitv, nullptr, 0, 0, nullptr, 0))}};
}

std::vector<std::string> library_folders() {
  std::vector<std::string> folders;
  const char* own = std::getenv("LD_LIBRARY_PATH");
  std::string rest = own == nullptr ? "" : own;
  for (std::size_t end = 0; !rest.empty(); rest.erase(0, end == rest.size() ? end : end + 1)) {
    end = std::min(rest.find(':'), rest.size());
    folders.push_back(rest.substr(0, end));
  }
  for (const char* known : {"/usr/local/lib", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64",
                            "/usr/lib", "/lib", "/usr/local/cuda/lib64", "/usr/lib64/openmpi/lib"})
    folders.emplace_back(known);
  return folders;
}

/// The first file whose name begins so; not opened, because MPI libraries do things when they are.
std::string find_library(const std::string& beginning) {
  for (const std::string& folder : library_folders()) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().filename().string().starts_with(beginning)) return entry.path();
  }
  return "";
}

void read_limits(Machine& machine) {
  std::tie(machine.open_files, machine.open_files_hard) = limit_of(RLIMIT_NOFILE);
  machine.processes = limit_of(RLIMIT_NPROC).first;
  machine.core_bytes = limit_of(RLIMIT_CORE).first;
  machine.cgroup_processes =
      cgroup_limit("pids", [](const Cgroup& cgroup) { return read_number(cgroup.folder + "/pids.max"); });
  machine.cgroup_memory_bytes = cgroup_limit("memory", limit_bytes_of);
}

}  // namespace

Machine Machine::read() {
  Machine machine;
  machine.online_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  machine.affinity_cpus = static_cast<int>(allowed_cpus().size());
  machine.cgroup_cpus = retinue::cgroup_cpus();
  const std::string memory = read_kernel_file("/proc/meminfo");
  machine.ram_bytes = counter_in(memory, "MemTotal:").value_or(0) * 1024;
  machine.available_bytes = counter_in(memory, "MemAvailable:").value_or(0) * 1024;
  machine.overcommit = static_cast<int>(read_number("/proc/sys/vm/overcommit_memory").value_or(0));
  read_limits(machine);
  const std::string pages = "/sys/kernel/mm/transparent_hugepage/";
  machine.shmem_huge_pages = chosen_word(pages + "shmem_enabled");
  machine.huge_pages = chosen_word(pages + "enabled");
  if (const auto scope = read_number("/proc/sys/kernel/yama/ptrace_scope"))
    machine.ptrace_scope = static_cast<int>(*scope);
  machine.core_pattern = first_line_of("/proc/sys/kernel/core_pattern").value_or("");
  struct statvfs shm {};
  if (statvfs("/dev/shm", &shm) == 0) machine.shm_bytes = shm.f_blocks * shm.f_frsize;
  machine.seccomp = static_cast<int>(counter_in(read_kernel_file("/proc/self/status"), "Seccomp:").value_or(0));
  machine.is_root = geteuid() == 0;
  utsname name{};
  if (uname(&name) == 0) machine.kernel = name.release;
  machine.calls = try_calls();
#ifdef RETINUE_HAS_TORCH
  machine.has_torch = true;
#endif
  machine.libraries = {{"Open MPI or MPICH", find_library("libmpi")},
                       {"gloo", find_library("libgloo")},
                       {"NCCL", find_library("libnccl")}};
  machine.gpus = visible_gpus();
  return machine;
}

}  // namespace retinue
