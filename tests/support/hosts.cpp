#include "support/hosts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace retinue::test {
namespace {

/// Another boot id than this kernel's, in this mount namespace.
bool change_boot_id(int host) {
  std::string path = std::filesystem::temp_directory_path() / "retinue-boot-id-XXXXXX";
  const int fd = mkstemp(path.data());
  const std::string id = fmt::format("00000000-0000-0000-0000-00000000000{}\n", host);
  const bool is_done = fd >= 0 && write(fd, id.data(), id.size()) == static_cast<ssize_t>(id.size()) &&
                       mount(path.c_str(), "/proc/sys/kernel/random/boot_id", nullptr, MS_BIND, nullptr) == 0;
  const int error = errno;
  unlink(path.c_str());
  errno = error;
  return is_done;
}

/// Holds a host until it is killed. Says on `report` that it is there, or why not.
[[noreturn]] void keep(int host, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool is_there = unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 && change_boot_id(host);
  const std::string text = is_there ? "y" : fmt::format("nno host can be made here: {}", std::strerror(errno));
  if (write(report, text.data(), text.size()) < 0 || !is_there) _exit(1);
  for (;;) pause();
}

}  // namespace

TwoHosts::TwoHosts() {
  for (int host = 0; host < 2 && missing_.empty(); ++host) {
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    keepers_[host] = fork();
    if (keepers_[host] == 0) keep(host, pipe_ends[1]);
    close(pipe_ends[1]);
    char text[200] = {};
    if (read(pipe_ends[0], text, sizeof text - 1) < 1 || text[0] != 'y') missing_ = text + 1;
    close(pipe_ends[0]);
  }
  if (missing_.empty()) connect();
}

TwoHosts::~TwoHosts() {
  for (const pid_t keeper : keepers_)
    if (keeper > 0) {
      kill(keeper, SIGKILL);
      waitpid(keeper, nullptr, 0);
    }
}

void TwoHosts::connect() {
  const auto run = [&](int host, const std::string& command) {
    const std::string line =
        fmt::format("PATH=$PATH:/usr/sbin:/sbin nsenter -t {} -n ip {} 2>/dev/null", keepers_[host], command);
    if (missing_.empty() && std::system(line.c_str()) != 0)
      missing_ = fmt::format("no virtual network here, or no ip (iproute2): ip {}", command);
  };
  run(0, "link add name veth0 type veth peer name veth1");
  run(0, fmt::format("link set dev veth1 netns {}", keepers_[1]));
  for (int host = 0; host < 2; ++host) {
    run(host, "link set dev lo up");
    run(host, fmt::format("addr add {}/24 dev {}", address(host), interface(host)));
    run(host, fmt::format("link set dev {} up", interface(host)));
  }
}

void TwoHosts::enter(int host) const {
  for (const char* const kind : {"net", "mnt"}) {
    const int fd = open(fmt::format("/proc/{}/ns/{}", keepers_[host], kind).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, 0) != 0) throw std::runtime_error(fmt::format("host {}: {}", host, std::strerror(errno)));
    close(fd);
  }
}

}  // namespace retinue::test
