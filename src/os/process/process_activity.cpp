#include "os/process/process_activity.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "os/files/kernel_files.h"
#include "os/process/process_look.h"

namespace retinue {
namespace {

enum class Waits { kReads, kWrites, kSleeps, kForDescriptors, kForLock, kForChild, kForPeer, kForDisk };

struct BlockingCall {
  long number;
  std::string_view name;
  Waits waits;
  bool has_descriptor = false;
};

/// The calls in which programs wait, and what for.
constexpr std::array kBlockingCalls = {
    BlockingCall{SYS_read, "read", Waits::kReads, true},
    BlockingCall{SYS_pread64, "pread", Waits::kReads, true},
    BlockingCall{SYS_readv, "readv", Waits::kReads, true},
    BlockingCall{SYS_preadv, "preadv", Waits::kReads, true},
    BlockingCall{SYS_recvfrom, "recv", Waits::kReads, true},
    BlockingCall{SYS_recvmsg, "recvmsg", Waits::kReads, true},
    BlockingCall{SYS_write, "write", Waits::kWrites, true},
    BlockingCall{SYS_pwrite64, "pwrite", Waits::kWrites, true},
    BlockingCall{SYS_writev, "writev", Waits::kWrites, true},
    BlockingCall{SYS_sendto, "send", Waits::kWrites, true},
    BlockingCall{SYS_sendmsg, "sendmsg", Waits::kWrites, true},
    BlockingCall{SYS_accept4, "accept", Waits::kForPeer, true},
    BlockingCall{SYS_accept, "accept", Waits::kForPeer, true},
    BlockingCall{SYS_connect, "connect", Waits::kForPeer, true},
    BlockingCall{SYS_fsync, "fsync", Waits::kForDisk, true},
    BlockingCall{SYS_fdatasync, "fdatasync", Waits::kForDisk, true},
    BlockingCall{SYS_flock, "flock", Waits::kForLock, true},
    BlockingCall{SYS_fcntl, "fcntl", Waits::kForLock, true},
    BlockingCall{SYS_openat, "open", Waits::kForPeer},
    BlockingCall{SYS_nanosleep, "nanosleep", Waits::kSleeps},
    BlockingCall{SYS_clock_nanosleep, "nanosleep", Waits::kSleeps},
#ifdef SYS_pause
    BlockingCall{SYS_pause, "pause", Waits::kSleeps},
#endif
    BlockingCall{SYS_rt_sigtimedwait, "sigwait", Waits::kSleeps},
    BlockingCall{SYS_rt_sigsuspend, "sigsuspend", Waits::kSleeps},
#ifdef SYS_poll
    BlockingCall{SYS_poll, "poll", Waits::kForDescriptors},
    BlockingCall{SYS_select, "select", Waits::kForDescriptors},
    BlockingCall{SYS_epoll_wait, "epoll_wait", Waits::kForDescriptors},
#endif
    BlockingCall{SYS_ppoll, "poll", Waits::kForDescriptors},
    BlockingCall{SYS_pselect6, "select", Waits::kForDescriptors},
    BlockingCall{SYS_epoll_pwait, "epoll_wait", Waits::kForDescriptors},
    BlockingCall{SYS_futex, "futex", Waits::kForLock},
#ifdef SYS_futex_waitv
    BlockingCall{SYS_futex_waitv, "futex", Waits::kForLock},
#endif
    BlockingCall{SYS_wait4, "wait", Waits::kForChild},
    BlockingCall{SYS_waitid, "wait", Waits::kForChild},
};

const BlockingCall* find_call(const ActivityLook& look) {
  const auto* const found = std::find_if(kBlockingCalls.begin(), kBlockingCalls.end(),
                                         [&](const BlockingCall& call) { return call.number == look.system_call; });
  return found == kBlockingCalls.end() ? nullptr : found;
}

/// "running", or the number and arguments in hexadecimal; or nothing where it may not be known.
void read_system_call(pid_t pid, ActivityLook& look) {
  std::istringstream fields(read_kernel_file(fmt::format("/proc/{}/syscall", pid)));
  long number = -1;
  if (!(fields >> number) || number < 0) return;
  look.system_call = number;
  fields >> std::hex >> look.first_argument;
  const BlockingCall* const call = find_call(look);
  if (call == nullptr || !call->has_descriptor) return;
  const std::string link = fmt::format("/proc/{}/fd/{}", pid, static_cast<int>(look.first_argument));
  look.descriptor = printable(target_of_link(link).substr(0, 255));
}

/// Who looked at its stack interrupted it, and the kernel names no call any more with which it goes on, which is a
/// sleep, a poll or a lock with an end; but where it waits in that.
void name_restarted_call(ActivityLook& look) {
  if (look.system_call != SYS_restart_syscall || look.kernel_function.empty()) return;
  if (look.kernel_function.find("poll") != std::string::npos)
    look.system_call = SYS_ppoll;
  else if (look.kernel_function.find("futex") != std::string::npos)
    look.system_call = SYS_futex;
  else
    look.system_call = SYS_clock_nanosleep;
}

std::string waits_in(const BlockingCall& call, const ActivityLook& look) {
  std::string of = call.has_descriptor
                       ? fmt::format("{} of descriptor {}{}{}", call.name, static_cast<int>(look.first_argument),
                                     look.descriptor.empty() ? "" : ", ", look.descriptor)
                       : std::string(call.name);
  switch (call.waits) {
    case Waits::kReads:
      return fmt::format("is blocked reading ({})", of);
    case Waits::kWrites:
      return fmt::format("is blocked writing ({})", of);
    case Waits::kSleeps:
      return fmt::format("sleeps ({})", of);
    case Waits::kForDescriptors:
      return fmt::format("waits for descriptors ({})", of);
    case Waits::kForLock:
      return fmt::format("waits for a lock, a thread or another rank ({})", of);
    case Waits::kForChild:
      return fmt::format("waits for a child process ({})", of);
    case Waits::kForPeer:
      return fmt::format("waits for another process ({})", of);
    case Waits::kForDisk:
      return fmt::format("waits for a disk ({})", of);
  }
  return of;
}

std::string rest_of(const std::optional<ActivityLook>& before, const ActivityLook& now) {
  const bool goes_on = now.system_call == SYS_restart_syscall;
  const ActivityLook& told = goes_on && before && find_call(*before) != nullptr ? *before : now;
  if (const BlockingCall* const call = find_call(told)) return waits_in(*call, told);
  if (goes_on) return "sleeps, or waits for something with a timeout (restart_syscall)";
  if (now.system_call) return fmt::format("waits in the kernel (system call {})", *now.system_call);
  if (!now.kernel_function.empty()) return fmt::format("waits in the kernel ({})", now.kernel_function);
  return "waits in the kernel";
}

/// What it used a CPU for since `before`; empty for less than `worth_a_word`.
std::string cpu_use(const ActivityLook& before, const ActivityLook& now, double worth_a_word) {
  const std::chrono::duration<double> elapsed = now.time - before.time;
  const std::chrono::duration<double> user = now.user_cpu - before.user_cpu;
  const std::chrono::duration<double> system = now.system_cpu - before.system_cpu;
  const double share = (user + system) / elapsed;
  if (elapsed < std::chrono::milliseconds(100) || share < worth_a_word) return "";
  if (share == 0 && before.state != 'R') return "";  // It has just woken up.
  if (share == 0) return fmt::format("is ready to run, but got no CPU time in the last {:.1f} s", elapsed.count());
  return fmt::format("runs in {} ({:.0f} % of a CPU in the last {:.1f} s)",
                     user >= system ? "its own code" : "the kernel", 100 * share, elapsed.count());
}

/// What makes it slow besides.
std::string burdens(const std::optional<ActivityLook>& before, const ActivityLook& now) {
  constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
  std::string text;
  if (before && now.major_faults > before->major_faults + 10)
    text += fmt::format("; it waits for pages from disk: {} major faults", now.major_faults - before->major_faults);
  // Less is what any process reads that looks about itself.
  if (before && now.read_bytes >= before->read_bytes + kMiB)
    text += fmt::format("; it read {} MiB in that time", (now.read_bytes - before->read_bytes) / kMiB);
  if (now.swapped_bytes > kMiB && now.swapped_bytes > now.resident_bytes / 4)
    text += fmt::format("; {} MiB of its memory are swapped out", now.swapped_bytes / kMiB);
  return text;
}

}  // namespace

std::optional<ActivityLook> look_at_activity(pid_t pid) {
  ActivityLook look;
  look.time = std::chrono::steady_clock::now();
  const std::optional<ProcessStat> stat = process_stat(pid);
  if (!stat) return std::nullopt;
  static_cast<ProcessStat&>(look) = *stat;
  look.read_bytes = counter_in(read_kernel_file(fmt::format("/proc/{}/io", pid)), "rchar:").value_or(0);
  look.swapped_bytes = ProcessStatus(pid).number("VmSwap") << 10;  // In KiB.
  look.kernel_function = first_line_of(fmt::format("/proc/{}/wchan", pid)).value_or("");
  if (look.kernel_function == "0") look.kernel_function.clear();
  read_system_call(pid, look);
  name_restarted_call(look);
  return look;
}

std::string describe_activity(pid_t pid, const std::optional<ActivityLook>& before,
                              const std::optional<ActivityLook>& now) {
  if (now && now->state == 'Z' && now->threads > 1) return "goes on in other threads: its main thread has ended";
  if (!now || now->has_ended()) return "has ended";
  if (const std::string standstill = standstill_of(pid); !standstill.empty()) {
    const bool has_place = now->state == 'D' && !now->kernel_function.empty();
    return standstill + (has_place ? fmt::format(" ({})", now->kernel_function) : "") + burdens(before, *now);
  }
  // A sleeper that wakes now and then is none that works.
  const bool is_running = now->state == 'R';
  const std::string use = before ? cpu_use(*before, *now, is_running ? 0 : 0.3) : "";
  if (is_running) return (use.empty() ? "runs" : use) + burdens(before, *now);
  // Of several threads the main one may wait for those that work.
  return rest_of(before, *now) + (use.empty() ? "" : "; the process " + use) + burdens(before, *now);
}

}  // namespace retinue
