#include "process/guardian/job_sweep.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "ipc/memory/job_layout.h"
#include "os/files/kernel_files.h"
#include "os/process/process_calls.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr auto kSweepTime = std::chrono::seconds(10);

std::vector<pid_t> all_processes() {
  auto pids = numbers_in_folder("/proc");
  if (!pids) throw SystemError("looking for what the job's ranks left behind: opening /proc", errno);
  return *std::move(pids);
}

bool is_out_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE;
}

/// Not open where the process has ended or is another user's. Errors: SystemError without a free descriptor.
std::ifstream open_file_of(pid_t pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
  if (!file && is_out_of_descriptors(errno))
    throw SystemError("looking for what the job's ranks left behind (raise ulimit -n)", errno);
  return file;
}

bool inherited_variable(pid_t pid, const std::string& wanted) {
  std::ifstream file = open_file_of(pid, "environ");
  for (std::string variable; std::getline(file, variable, '\0');)
    if (variable == wanted) return true;
  return false;
}

/// Whether the process has the mapping that enter_process_slot() made in a rank.
bool inherited_mark(pid_t pid, std::uint64_t inode) {
  std::ifstream maps = open_file_of(pid, "maps");
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

  /// Kills all that are there now, or as many as there are descriptors for. Returns their descriptors.
  std::vector<FileDescriptor> kill_all() const {
    std::vector<FileDescriptor> killed;
    for (const pid_t pid : all_processes()) {
      if (std::find(spared_.begin(), spared_.end(), pid) != spared_.end()) continue;
      try {
        FileDescriptor pidfd = open_pidfd(pid);  // First: what is looked at afterwards is surely this process.
        if (!inherited_variable(pid, variable_) && !inherited_mark(pid, inode_)) continue;
        send_signal_to(pidfd.get(), SIGKILL);
        killed.push_back(std::move(pidfd));
      } catch (const SystemError& error) {
        if (!is_out_of_descriptors(error.errno_value())) continue;  // It has ended meanwhile.
        if (killed.empty()) throw;
        return killed;
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
  for (;;) {
    const std::vector<FileDescriptor> killed = sweep.kill_all();  // Closed before the next ones are opened.
    if (killed.empty() || deadline.passed()) return;
    for (const FileDescriptor& pidfd : killed)
      wait_for_exit(pidfd.get(), std::chrono::duration_cast<std::chrono::milliseconds>(deadline.left(kSweepTime)));
  }
}

}  // namespace retinue
