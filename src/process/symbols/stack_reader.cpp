#include "process/symbols/stack_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <optional>

#include "os/files/descriptor_calls.h"
#include "os/files/file_descriptor.h"
#include "os/process/process_calls.h"
#include "os/process/signal_names.h"
#include "process/symbols/live_stack.h"
#include "process/symbols/symbolizer.h"
#include "retinue/base/deadline.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

void expect_all(const std::vector<ThreadStack>& stacks, Symbolizer& symbolizer) {
  std::map<std::string, std::vector<std::uint64_t>> offsets;
  for (const ThreadStack& stack : stacks)
    for (const ThreadStack::Frame& frame : stack.frames) offsets[frame.path].push_back(frame.offset);
  for (const auto& [path, list] : offsets) symbolizer.expect(path, list);
}

std::string stack_text(const ThreadStack& stack, Symbolizer& symbolizer) {
  std::string text = fmt::format("thread {} ({})\n", stack.thread, stack.name);
  if (!stack.problem.empty()) text += fmt::format("  {}\n", stack.problem);
  std::vector<StackLine> lines;
  for (const ThreadStack::Frame& frame : stack.frames) symbolizer.append_lines(frame.path, frame.offset, lines);
  return text + stack_text(trim_outside(std::move(lines)));
}

/// False: nothing more can be read without doing harm.
/// In the child: one length and text for each process.
[[noreturn]] void serve(const std::vector<pid_t>& pids, std::size_t first, std::chrono::milliseconds patience, int fd) {
  Symbolizer symbolizer;
  for (std::size_t index = first; index < pids.size(); ++index) {
    std::string text;
    bool holds_one = false;
    try {
      const std::vector<ThreadStack> stacks = capture_stacks(pids[index], Deadline::after(patience / 2));
      expect_all(stacks, symbolizer);
      for (const ThreadStack& stack : stacks) {
        text += stack_text(stack, symbolizer);
        holds_one |= stack.is_held;
      }
    } catch (const std::exception& error) {
      text += fmt::format("  {}\n", error.what());
    }
    const std::uint64_t bytes = text.size();
    if (!write_all(fd, {reinterpret_cast<const char*>(&bytes), sizeof bytes}) || !write_all(fd, text) || holds_one)
      break;
  }
  _exit(0);
}

class StackReader {
 public:
  StackReader(const std::vector<pid_t>& pids, std::size_t first, std::chrono::milliseconds patience) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw SystemError("making a pipe for stacks", errno);
    output_.reset(ends[0]);
    FileDescriptor input(ends[1]);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ < 0) throw SystemError("forking a process that reads stacks", errno);
    if (pid_ != 0) return;
    die_with_parent(parent);
    serve(pids, first, patience, input.get());
  }
  ~StackReader() { end(); }

  enum class Got { kText, kEnd, kNothing };

  Got read_text(Deadline deadline, std::string& text) const {
    std::uint64_t bytes = 0;
    if (const Got got = read_all(&bytes, sizeof bytes, deadline); got != Got::kText) return got;
    text.resize(bytes);
    return read_all(text.data(), bytes, deadline);
  }

  /// Kills the child if it still runs. Returns how it ended, as wait() gives it.
  int end() {
    if (pid_ <= 0) return 0;
    kill(pid_, SIGKILL);
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) continue;
    pid_ = 0;
    return status;
  }

 private:
  Got read_all(void* data, std::size_t bytes, Deadline deadline) const {
    char* at = static_cast<char*>(data);
    while (bytes > 0) {
      if (!wait_ready(output_.get(), POLLIN, deadline)) return Got::kNothing;
      const ssize_t got = read(output_.get(), at, bytes);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return Got::kEnd;
      at += got;
      bytes -= static_cast<std::size_t>(got);
    }
    return Got::kText;
  }

  FileDescriptor output_;
  pid_t pid_ = 0;
};

}  // namespace

void read_stacks(const std::vector<pid_t>& pids, std::chrono::milliseconds patience,
                 const std::function<void(std::size_t, const std::string&)>& tell) {
  std::optional<StackReader> reader;
  bool is_fresh = false;
  for (std::size_t next = 0; next < pids.size();) {
    if (!reader) {
      reader.emplace(pids, next, patience);
      is_fresh = true;
    }
    std::string text;
    const auto got = reader->read_text(Deadline::after(patience), text);
    if (got == StackReader::Got::kText) {
      tell(next++, text);
      is_fresh = false;
      continue;
    }
    const int status = reader->end();
    reader.reset();
    // One that ended by itself after its last text had done what it could.
    if (got == StackReader::Got::kEnd && !is_fresh && WIFEXITED(status)) continue;
    const double seconds = std::chrono::duration<double>(patience).count();
    tell(next++, got == StackReader::Got::kNothing
                     ? fmt::format("  its stacks could not be read within {} s\n", seconds)
                     : fmt::format("  its stacks could not be read: the reader ended ({})\n",
                                   WIFSIGNALED(status) ? signal_name(WTERMSIG(status)) : "exit"));
  }
}

}  // namespace retinue
