#include "os/process/kill_cgroup.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "os/files/file_descriptor.h"
#include "os/files/kernel_files.h"

namespace retinue {
namespace {

bool write_text(const std::string& path, const std::string& text) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  return file && write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

/// Where the caller's own is mounted; empty if that is nowhere.
std::string own_folder() {
  std::istringstream lines(read_kernel_file("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("0::")) continue;
    const std::string path = line == "0::/" ? "" : line.substr(3);
    // The second: where version 1 is in use, too.
    for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
      std::string folder = root + path;
      if (access((folder + "/cgroup.procs").c_str(), F_OK) == 0) return folder;
    }
  }
  return {};
}

}  // namespace

std::optional<KillCgroup> KillCgroup::make(const std::string& name, std::string& problem) {
  const std::string parent = own_folder();
  if (parent.empty()) {
    problem = "no version-2 cgroup is mounted around this process";
    return std::nullopt;
  }
  KillCgroup made(parent, parent + "/" + name);
  const char* const folder = made.folder_.c_str();
  if (mkdir(folder, 0755) != 0) {
    problem = fmt::format("making {}: {}", made.folder_, strerrordesc_np(errno));
    return std::nullopt;
  }
  if (access((made.folder_ + "/cgroup.kill").c_str(), W_OK) == 0 &&
      access((parent + "/cgroup.procs").c_str(), W_OK) == 0)
    return made;
  problem = fmt::format("no right to move processes or no cgroup.kill in {}: {}", made.folder_, strerrordesc_np(errno));
  rmdir(folder);
  return std::nullopt;
}

bool KillCgroup::add(pid_t pid) const {
  return write_text(folder_ + "/cgroup.procs", std::to_string(pid));
}

bool KillCgroup::leave() const {
  return write_text(parent_ + "/cgroup.procs", "0");
}

void KillCgroup::kill_and_remove(std::chrono::milliseconds patience) const {
  const auto end = std::chrono::steady_clock::now() + patience;
  write_text(folder_ + "/cgroup.kill", "1");
  const FileDescriptor events(open((folder_ + "/cgroup.events").c_str(), O_RDONLY | O_CLOEXEC));
  while (rmdir(folder_.c_str()) != 0 && errno == EBUSY) {
    char text[256];
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (!events || left <= 0) return;
    // Read before the next look at the folder, so that no change in between is missed.
    [[maybe_unused]] const ssize_t bytes = pread(events.get(), text, sizeof text, 0);
    if (rmdir(folder_.c_str()) == 0) return;
    pollfd entry{events.get(), POLLPRI, 0};
    poll(&entry, 1, static_cast<int>(left));
  }
}

}  // namespace retinue
