#include "started.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "bench.h"
#include "build_facts.h"
#include "peer.h"
#include "samples.h"

namespace retinue::bench {

namespace fs = std::filesystem;

namespace {

/// A file in a folder of PATH; empty if there is none.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  return "";
}

}  // namespace

pid_t start_program(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output < 0) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  }
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw Unavailable(fmt::format("cannot start {}: {}", arguments[0], std::strerror(error)));
  return pid;
}

void wait_for_success(pid_t pid, const std::string& name) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw Unavailable(fmt::format("{} failed (wait status {}); its message is above", name, status));
}

Drained drain_program(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Unavailable(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  Drained drained;
  const std::int64_t start = now_ns();
  const pid_t pid = start_program(arguments, ends[1]);
  close(ends[1]);
  static std::array<char, 1 << 16> text;
  for (ssize_t got = 0; (got = read(ends[0], text.data(), text.size())) > 0;) {
    drained.bytes += static_cast<std::size_t>(got);
    drained.lines += static_cast<std::size_t>(std::count(text.begin(), text.begin() + got, '\n'));
  }
  close(ends[0]);
  wait_for_success(pid, arguments[0]);
  drained.us = static_cast<double>(now_ns() - start) / 1000;
  return drained;
}

std::string retinue_command() {
  const fs::path command = fs::read_symlink("/proc/self/exe").parent_path() / "retinue";
  if (!fs::exists(command)) throw Unavailable("there is no command retinue beside retinue-bench: build it");
  return command.string();
}

std::string mpirun_command() {
  const std::string installed = source_folder() + "/.retinue/venv-peer-openmpi/bin/mpirun";
  std::string mpirun = access(installed.c_str(), X_OK) == 0 ? installed : find_program("mpirun");
  if (mpirun.empty()) throw Unavailable("no Open MPI: run make peers, or have its mpirun in PATH");
  return mpirun;
}

std::string torch_python() {
  std::string python = peer_python();
  if (python.empty()) throw Unavailable("no Python with PyTorch: run make peers, or set RETINUE_PEER_PYTHON");
  return python;
}

}  // namespace retinue::bench
