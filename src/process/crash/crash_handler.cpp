#include "process/crash/crash_handler.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>

#include "os/sync/clock.h"
#include "os/sync/futex.h"
#include "process/crash/crash_writer.h"
#include "process/crash/exception_report.h"
#include "process/crash/stack_capture.h"
#include "process/crash/thread_start.h"
#include "retinue/base/error.h"

namespace retinue {
namespace {

constexpr std::array kSignals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
// The kernel saves up to 12 KiB of registers, the unwinder wants as much again; sanitizers multiply it.
constexpr std::size_t kSignalStackBytes = 128u << 10;
constexpr std::size_t kGuardBytes = 4096;
// A fault this near to the stack pointer is the stack's own end: no other mapping comes closer than its guard.
constexpr std::uintptr_t kOverflowReachBytes = 64u << 10;
constexpr std::chrono::milliseconds kOtherWriterPatience{200};

// A signal handler has no argument of its own: this is all that it can know.
std::atomic<CrashRecord*> crash_record;
std::atomic<pid_t> owner_pid;  // A child that the rank forks has the handlers, but the record is not its own.
std::atomic<void (*)()> after_crash;
struct sigaction previous_actions[NSIG];
std::terminate_handler previous_terminate;

/// This thread's alternate stack, unmapped with the thread.
class SignalStack {
 public:
  void use() {
    stack_t current{};
    sigaltstack(nullptr, &current);
    if (!(current.ss_flags & SS_DISABLE) && current.ss_size >= kSignalStackBytes / 4) return;
    void* memory = mmap(nullptr, kGuardBytes + kSignalStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw SystemError("cannot map a signal stack", errno);
    mprotect(memory, kGuardBytes, PROT_NONE);
    stack_t mine{};
    mine.ss_sp = static_cast<char*>(memory) + kGuardBytes;
    mine.ss_size = kSignalStackBytes;
    if (sigaltstack(&mine, nullptr) != 0) {
      const int refused = errno;
      munmap(memory, kGuardBytes + kSignalStackBytes);
      throw SystemError("cannot set a signal stack", refused);
    }
    memory_ = memory;
  }

  ~SignalStack() {
    if (memory_ == nullptr) return;
    // The main thread's stays: static destructors crash too, and the process takes it along.
    if (gettid() == getpid()) return;
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
    munmap(memory_, kGuardBytes + kSignalStackBytes);
  }

 private:
  void* memory_ = nullptr;
};

// >>> async-signal-safe

void describe_signal(const siginfo_t& info, const ucontext_t& context, CrashRecord& record) {
  FixedText message(record.message);
  record.type[0] = '\0';
  if (info.si_code <= 0) {
    if (info.si_pid != getpid()) message << "sent by process " << static_cast<std::uint64_t>(info.si_pid);
    return;
  }
  record.fault_address = reinterpret_cast<std::uintptr_t>(info.si_addr);
  if (info.si_signo != SIGSEGV) return;
  if (info.si_code == SI_KERNEL) message << "at an address that no process can have";
  const std::uintptr_t stack_pointer = stack_pointer_of(context);
  if (record.fault_address + kOverflowReachBytes - stack_pointer < 2 * kOverflowReachBytes) message << "stack overflow";
}

void record_signal(const siginfo_t& info, ucontext_t& context, CrashRecord& record) {
  record.time_ns = monotonic_ns();
  record.kind = CrashKind::kSignal;
  record.signal = info.si_signo;
  record.fault_address = 0;
  record.consequence = 0;
  describe_signal(info, context, record);
  RawStack stack;
  capture_interrupted_stack(stack, context);
  write_frames(stack, record);
}

void report(const CrashRecord& record) {
  const auto function = after_crash.load(std::memory_order_acquire);
  if (function != nullptr && record.phase.load(std::memory_order_acquire) == 2) function();
}

/// Another thread failed first: its record is worth more than a quick end, but not worth a hang.
void await_other_writer(const CrashRecord& record) {
  if (record.writer.load(std::memory_order_relaxed) == gettid()) return;
  if (record.phase.load(std::memory_order_acquire) == 1) futex_wait(record.phase, 1, kOtherWriterPatience);
}

void on_signal(int signal, siginfo_t* info, void* raw_context) {
  const int saved_errno = errno;
  auto& context = *static_cast<ucontext_t*>(raw_context);
  CrashRecord& record = *crash_record.load(std::memory_order_acquire);
  const bool is_owner = getpid() == owner_pid.load(std::memory_order_relaxed);
  if (!is_owner) {
    // Takes its course below.
  } else if (claim_crash_record(record) || is_own_unfinished_record(record)) {
    record_signal(*info, context, record);
    complete_crash_record(record);
  } else {
    await_other_writer(record);
  }
  if (is_owner) report(record);  // Also after another thread's crash: this one must not end the process before.
  // The same signal again, with the same details, meets whatever was there before us as soon as this handler returns.
  sigaction(signal, &previous_actions[signal], nullptr);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, info);
  errno = saved_errno;
}

// <<< async-signal-safe

[[noreturn]] void on_terminate() {
  CrashRecord& record = *crash_record.load(std::memory_order_acquire);
  const bool is_owner = getpid() == owner_pid.load(std::memory_order_relaxed);
  if (is_owner && claim_crash_record(record)) {
    record.kind = CrashKind::kTerminate;
    record.signal = SIGABRT;
    record.fault_address = 0;
    bool is_throw_known = false;
    if (const std::exception_ptr exception = std::current_exception()) {
      is_throw_known = describe_exception(exception, record);
    } else {
      record.type[0] = '\0';
      FixedText(record.message) << "std::terminate without an exception";
      record.time_ns = monotonic_ns();
    }
    if (!is_throw_known) {
      RawStack stack;
      capture_stack(stack, {});
      write_frames(stack, record);
    }
    complete_crash_record(record);
  }
  if (is_owner) report(record);
  if (previous_terminate != nullptr) previous_terminate();
  std::abort();
}

void install_handler(int signal) {
  struct sigaction& previous = previous_actions[signal];
  sigaction(signal, nullptr, &previous);
  if (!(previous.sa_flags & SA_SIGINFO) && previous.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  // A second fault inside the handler finds its signal blocked, and the kernel ends the process: no loop, no hang.
  sigemptyset(&action.sa_mask);
  for (const int other : kSignals) sigaddset(&action.sa_mask, other);
  if (sigaction(signal, &action, nullptr) != 0) throw SystemError("cannot install a crash handler", errno);
}

}  // namespace

void use_signal_stack() {
  thread_local SignalStack stack;
  stack.use();
}

void call_after_crash(void (*function)()) {
  after_crash.store(function, std::memory_order_release);
}

void install_crash_handlers(CrashRecord& record) {
  owner_pid.store(getpid(), std::memory_order_relaxed);
  prepare_stack_capture();
  use_signal_stack();
  guard_new_threads();
  const bool is_first = crash_record.exchange(&record, std::memory_order_acq_rel) == nullptr;
  if (!is_first) return;
  for (const int signal : kSignals) install_handler(signal);
  previous_terminate = std::set_terminate(on_terminate);
}

}  // namespace retinue
