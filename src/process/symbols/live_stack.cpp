#include "process/symbols/live_stack.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "os/files/kernel_files.h"
#include "os/process/process_look.h"
#include "os/process/process_stat.h"
#include "os/sync/clock.h"
#include "os/testing/fault_point.h"
#include "process/symbols/libdw.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::size_t kMaxFrames = 256;  // A damaged stack may have no end.
constexpr auto kLookUp = std::chrono::milliseconds(100);

// Unwinding needs no debug information, and where it is looked for may be far away.
int find_no_debuginfo(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
  return -1;
}

int find_elf(Dwfl_Module* module, void** user_data, const char* name, Dwarf_Addr base, char** found_name, Elf** elf) {
  return libdw().dwfl_linux_proc_find_elf(module, user_data, name, base, found_name, elf);
}

const Dwfl_Callbacks kCallbacks = {
    .find_elf = find_elf,
    .find_debuginfo = find_no_debuginfo,
    .section_address = nullptr,
    .debuginfo_path = nullptr,
};

struct EndDwfl {
  void operator()(Dwfl* dwfl) const { libdw().dwfl_end(dwfl); }
};

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads = numbers_in_folder(fmt::format("/proc/{}/task", pid)).value_or(std::vector<pid_t>());
  std::ranges::sort(threads);
  return threads;
}

/// What forbids ptrace, and what to do about it.
std::string reason_of_refusal(pid_t pid) {
  if (const std::uint64_t tracer = ProcessStatus(pid).number("TracerPid"); tracer != 0)
    return fmt::format("a debugger (pid {}) holds it already", tracer);
  const std::string scope = first_line_of("/proc/sys/kernel/yama/ptrace_scope").value_or("");
  if (!scope.empty() && scope != "0")
    return fmt::format("kernel.yama.ptrace_scope is {}: call this as root, or sysctl kernel.yama.ptrace_scope=0",
                       scope);
  return "it is another user's, or a seccomp filter forbids ptrace: call this as root, in a container with docker "
         "--cap-add SYS_PTRACE";
}

/// Holds one thread. Seized, not attached: no SIGSTOP is sent that could outlive this process.
class HeldThread {
 public:
  HeldThread(pid_t pid, pid_t thread, Deadline deadline) : thread_(thread) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
      const int error = errno;
      if (error == EPERM && state_of_thread(pid, thread).value_or('Z') != 'Z')
        throw SystemError(fmt::format("looking at the stacks of pid {} is forbidden: {}", pid, reason_of_refusal(pid)),
                          error);
      return;  // It has ended.
    }
    is_seized_ = true;
    ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
    wait(deadline);
  }
  ~HeldThread() {
    if (is_stopped_) ptrace(PTRACE_DETACH, thread_, nullptr, signal_);
  }
  HeldThread(const HeldThread&) = delete;
  HeldThread& operator=(const HeldThread&) = delete;

  bool is_stopped() const { return is_stopped_; }
  bool has_ended() const { return !is_seized_; }

 private:
  void wait(Deadline deadline) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
      int status = 0;
      const pid_t changed = waitpid(thread_, &status, __WALL | WNOHANG);
      if (changed == thread_ && WIFSTOPPED(status)) {
        is_stopped_ = true;
        // One that just got a signal stopped for that; it gets it when it is let go.
        if (status >> 16 != PTRACE_EVENT_STOP) signal_ = WSTOPSIG(status);
        return;
      }
      if (changed != 0) is_seized_ = false;
      if (changed != 0 || deadline.passed()) return;
      const timespec time = to_timespec(deadline.left(kLookUp));
      sigtimedwait(&child, nullptr, &time);
    }
  }

  pid_t thread_;
  bool is_seized_ = false;
  bool is_stopped_ = false;
  long signal_ = 0;
};

ThreadStack::Frame frame_at(Dwfl* dwfl, Dwarf_Addr address) {
  Dwfl_Module* module = libdw().dwfl_addrmodule(dwfl, address);
  GElf_Addr bias = 0;
  if (module == nullptr || libdw().dwfl_module_getelf(module, &bias) == nullptr) return {{}, address};
  const char* path = nullptr;
  const char* name = libdw().dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, &path, nullptr);
  const char* known = path != nullptr ? path : name;
  return {known != nullptr ? known : "", address - bias};
}

struct Unwinding {
  Dwfl* dwfl;
  std::vector<ThreadStack::Frame>* frames;
};

int add_frame(Dwfl_Frame* state, void* argument) {
  const auto& unwinding = *static_cast<Unwinding*>(argument);
  Dwarf_Addr address = 0;
  bool is_activation = false;
  if (!libdw().dwfl_frame_pc(state, &address, &is_activation)) return DWARF_CB_ABORT;
  // A return address may already be the next line's, or the next function's.
  unwinding.frames->push_back(frame_at(unwinding.dwfl, is_activation ? address : address - 1));
  return unwinding.frames->size() < kMaxFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

ThreadStack capture(Dwfl* dwfl, pid_t pid, pid_t thread, Deadline deadline) {
  ThreadStack stack;
  stack.thread = thread;
  stack.name = printable(first_line_of(fmt::format("/proc/{}/task/{}/comm", pid, thread)).value_or(""));
  const HeldThread held(pid, thread, deadline);
  if (held.is_stopped()) {
    fault_point("stacks.held");
    Unwinding unwinding{dwfl, &stack.frames};
    libdw().dwfl_getthread_frames(dwfl, thread, add_frame, &unwinding);
    if (stack.frames.empty()) stack.problem = fmt::format("its stack cannot be read: {}", libdw().dwfl_errmsg(-1));
  } else if (held.has_ended()) {
    stack.problem = "it has ended";
  } else {
    stack.is_held = true;
    stack.problem =
        fmt::format("it does not stop: it is in the kernel (state {})", state_of_thread(pid, thread).value_or('?'));
  }
  return stack;
}

}  // namespace

std::vector<ThreadStack> capture_stacks(pid_t pid, Deadline deadline) {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  if (!libdw().problem.empty()) throw Error("stacks are read with libdw, which cannot be loaded: " + libdw().problem);
  const std::unique_ptr<Dwfl, EndDwfl> dwfl(libdw().dwfl_begin(&kCallbacks));
  if (!dwfl) throw Error(fmt::format("libdw cannot be used: {}", libdw().dwfl_errmsg(-1)));
  if (const int unreadable = libdw().dwfl_linux_proc_report(dwfl.get(), pid); unreadable > 0)
    throw SystemError(fmt::format("reading what pid {} has mapped", pid), unreadable);
  libdw().dwfl_report_end(dwfl.get(), nullptr, nullptr);
  constexpr bool kWeStopThreads = true;
  const int error = libdw().dwfl_linux_proc_attach(dwfl.get(), pid, kWeStopThreads);
  if (error > 0) throw SystemError(fmt::format("looking at the threads of pid {}", pid), error);
  if (error < 0) throw Error(fmt::format("looking at the threads of pid {}: {}", pid, libdw().dwfl_errmsg(-1)));
  std::vector<ThreadStack> stacks;
  for (const pid_t thread : threads_of(pid)) stacks.push_back(capture(dwfl.get(), pid, thread, deadline));
  if (stacks.empty()) throw SystemError(fmt::format("looking at pid {}: it has ended", pid), ESRCH);
  return stacks;
}

}  // namespace retinue
