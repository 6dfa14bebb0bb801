#include "python_stacks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "os/files/descriptor_calls.h"
#include "os/files/file_descriptor.h"
#include "os/files/kernel_files.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

bool is_python(pid_t pid) {
  const std::string program = target_of_link(fmt::format("/proc/{}/exe", pid));
  return std::string_view(program).substr(program.rfind('/') + 1).starts_with("python") ||
         read_kernel_file(fmt::format("/proc/{}/maps", pid)).find("/libpython3") != std::string::npos;
}

/// pip installs both into the same folder.
std::string find_py_spy() {
  const auto beside = std::filesystem::path(target_of_link("/proc/self/exe")).replace_filename("py-spy");
  return access(beside.c_str(), X_OK) == 0 ? beside.string() : "py-spy";
}

/// A program that runs, whose output is read.
class Output {
 public:
  /// Errors: SystemError; with ENOENT if there is no such program.
  explicit Output(const std::vector<std::string>& command) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making a pipe for " + command[0], errno);
    output_.reset(ends[0]);
    const FileDescriptor input(ends[1]);
    std::vector<char*> argv;
    for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, input.get(), STDERR_FILENO);
    const int error = posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) throw SystemError("executing " + command[0], error);
  }
  ~Output() {
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  /// All of it; nothing if it does not end in time.
  std::optional<std::string> read_all(Deadline deadline) const {
    std::string text;
    for (char part[4096];;) {
      if (!wait_ready(output_.get(), POLLIN, deadline)) return std::nullopt;
      const ssize_t got = read(output_.get(), part, sizeof part);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return text;
      text.append(part, static_cast<std::size_t>(got));
    }
  }

 private:
  FileDescriptor output_;
  pid_t pid_ = 0;
};

/// Without the lines before the first thread, which name the process.
std::string_view threads_in(std::string_view text) {
  const std::size_t begin = text.find("\n\nThread ");
  return begin == std::string_view::npos ? text : text.substr(begin + 2);
}

}  // namespace

std::string python_stacks(pid_t pid, std::chrono::milliseconds patience) {
  if (!is_python(pid)) return {};
  const std::string title = "in Python:\n";
  try {
    const Output output({find_py_spy(), "dump", "--nonblocking", "--pid", std::to_string(pid)});
    const std::optional<std::string> text = output.read_all(Deadline::after(patience));
    return title + (text ? std::string(threads_in(*text)) : "  py-spy did not end in time\n");
  } catch (const SystemError& error) {
    if (error.errno_value() != ENOENT) return fmt::format("{}  {}\n", title, error.what());
    return title + "  py-spy, which reads these stacks, is not installed: pip install py-spy\n";
  }
}

}  // namespace retinue
