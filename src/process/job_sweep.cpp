#include "process/job_sweep.h"

#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ipc/job_layout.h"
#include "os/process_calls.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr auto kSweepTime = std::chrono::seconds(10);

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* entry = readdir(folder)) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    if (std::from_chars(entry->d_name, end, pid).ptr == end) pids.push_back(pid);
  }
  closedir(folder);
  return pids;
}

bool inherited_variable(pid_t pid, const std::string& wanted) {
  std::ifstream file(fmt::format("/proc/{}/environ", pid), std::ios::binary);
  for (std::string variable; std::getline(file, variable, '\0');)
    if (variable == wanted) return true;
  return false;
}

/// Whether the process has the mapping that enter_process_slot() made in a rank.
bool inherited_mark(pid_t pid, std::uint64_t inode) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);) {
    char rights[5] = {};
    unsigned long long found = 0;
    if (std::sscanf(line.c_str(), "%*s %4s %*s %*s %llu", rights, &found) != 2) continue;
    if (found == inode && std::strcmp(rights, "---s") == 0) return true;
  }
  return false;
}

class Sweep {
 public:
  explicit Sweep(const JobMemory& memory)
      : variable_(fmt::format("{}={}", kJobVariable, job_variable_value(memory))), inode_(memory.header().inode) {
    spared_ = {getpid()};
    for (const std::uint32_t slot : {kProgramSlot, kGuardianSlot})
      spared_.push_back(process_slot(memory, slot).pid.load(std::memory_order_relaxed));
  }

  /// Kills all that are there now. Returns their descriptors.
  std::vector<FileDescriptor> kill_all() const {
    std::vector<FileDescriptor> killed;
    for (const pid_t pid : all_processes()) {
      if (std::find(spared_.begin(), spared_.end(), pid) != spared_.end()) continue;
      try {
        FileDescriptor pidfd = open_pidfd(pid);  // First: what is looked at afterwards is surely this process.
        if (!inherited_variable(pid, variable_) && !inherited_mark(pid, inode_)) continue;
        send_signal_to(pidfd.get(), SIGKILL);
        killed.push_back(std::move(pidfd));
      } catch (const SystemError&) {
        // It has ended meanwhile.
      }
    }
    return killed;
  }

 private:
  std::string variable_;
  std::uint64_t inode_;
  std::vector<pid_t> spared_;
};

}  // namespace

std::string job_variable_value(const JobMemory& memory) {
  return fmt::format("{:016x}", memory.header().job_id);
}

void sweep_job(const JobMemory& memory) {
  const Deadline deadline = Deadline::after(kSweepTime);
  const Sweep sweep(memory);
  // Again and again, since the dying may still fork.
  for (auto killed = sweep.kill_all(); !killed.empty() && !deadline.passed(); killed = sweep.kill_all())
    for (const FileDescriptor& pidfd : killed)
      wait_for_exit(pidfd.get(), std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left(kSweepTime)));
}

}  // namespace retinue
