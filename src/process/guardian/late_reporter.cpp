#include "process/guardian/late_reporter.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "base/split.h"
#include "ipc/memory/job_layout.h"
#include "ipc/memory/late_mailbox.h"
#include "os/process/process_activity.h"
#include "os/sockets/bell_socket.h"
#include "process/failure/helper.h"
#include "process/symbols/stack_reader.h"
#include "retinue/base/error.h"
#include "retinue/os/detail/standard_error.h"

namespace retinue {
namespace {

/// Of a helper: whatever it met, another text waits for it then.
constexpr unsigned kMostSeconds = 60;
constexpr auto kStackPatience = std::chrono::seconds(3);
constexpr int kStackLines = 24;
/// Long enough to tell who uses a CPU, counted in ticks of 10 ms, from who does not.
constexpr timespec kBetweenLooks{.tv_sec = 0, .tv_nsec = 500'000'000};

using Looks = std::map<pid_t, std::optional<ActivityLook>>;

Looks look_at_all(const std::vector<pid_t>& pids) {
  Looks looks;
  for (const pid_t pid : pids) looks[pid] = look_at_activity(pid);
  return looks;
}

/// Its main thread's, which makes the calls as a rule; the others are counted.
std::string main_stack(pid_t pid, std::string_view stacks) {
  const std::string head = fmt::format("thread {} (", pid);
  std::string text;
  int threads = 0;
  int lines = 0;
  bool is_main = true;  // Also of what is no thread's: why there are no stacks.
  for (const std::string_view line : split(stacks, '\n')) {
    if (line.starts_with("thread ")) {
      is_main = line.starts_with(head);
      ++threads;
    } else if (is_main && ++lines <= kStackLines) {
      text += fmt::format("    {}\n", line);
    }
  }
  if (lines > kStackLines) text += fmt::format("      and {} more frames\n", lines - kStackLines);
  if (threads > 1) text += fmt::format("    and {} more threads: see retinue stacks\n", threads - 1);
  return text;
}

[[noreturn]] void show(const JobMemory& memory, const std::string& text) {
  sigset_t alarms;
  sigemptyset(&alarms);
  sigaddset(&alarms, SIGALRM);
  signal(SIGALRM, SIG_DFL);
  sigprocmask(SIG_UNBLOCK, &alarms, nullptr);
  alarm(kMostSeconds);
  signal(SIGCHLD, SIG_DFL);  // The handler is the guardian's.
  write_standard_error(with_activities(memory, text));
  _exit(0);
}

}  // namespace

std::string with_activities(const JobMemory& memory, const std::string& text) {
  std::vector<pid_t> pids;
  for (const std::string_view line : split(text, '\n'))
    if (const auto pid = process_of_activity_line(line)) pids.push_back(*pid);
  const Looks before = look_at_all(pids);
  nanosleep(&kBetweenLooks, nullptr);
  const Looks now = look_at_all(pids);
  std::map<pid_t, std::string> stacks;
  try {
    read_stacks(pids, kStackPatience, [&](std::size_t index, const std::string& stack) {
      stacks[pids[index]] = main_stack(pids[index], stack);
    });
  } catch (const SystemError& error) {
    for (const pid_t pid : pids) stacks.emplace(pid, fmt::format("    {}\n", error.what()));
  }
  return replace_activity_lines(text, [&](pid_t pid) {
    note_activity(memory, pid, stacks[pid]);
    return fmt::format("    it {}\n{}", describe_activity(pid, before.at(pid), now.at(pid)), stacks[pid]);
  });
}

void LateReporter::open(JobMemory& memory) {
  bell_ = make_bell_socket();
  if (!bell_) return;
  try {
    memory.header().late_mailbox.bell.store(name_bell_socket(bell_.get()), std::memory_order_release);
  } catch (const SystemError&) {
    bell_.reset();
  }
}

void LateReporter::serve(const JobMemory& memory) {
  if (bell_) drain_bell_socket(bell_.get());
  if (helper_ != 0) return;
  const std::optional<std::string> text = take_late_text(memory);
  if (!text) return;
  const pid_t pid = fork_helper();
  if (pid == 0) show(memory, *text);
  helper_ = std::max(pid, 0);
}

}  // namespace retinue
