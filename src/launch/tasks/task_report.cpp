#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "os/files/file_descriptor.h"
#include "os/process/process_calls.h"
#include "process/crash/exception_report.h"
#include "process/failure/helper.h"
#include "process/symbols/symbolizer.h"
#include "retinue/base/error.h"
#include "retinue/launch/detail/task.h"

namespace retinue::detail {
namespace {

constexpr auto kHelperTime = std::chrono::seconds(20);

/// A crash record that a helper, a fork of this process, can write into. Another fork has one of its own: it would
/// write its exceptions into this one at the same time.
ProcessSlot* scratch() {
  static ProcessSlot* slot = nullptr;
  static pid_t owner = 0;
  if (owner == getpid()) return slot;
  void* memory = mmap(nullptr, sizeof(ProcessSlot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (slot != nullptr) munmap(slot, sizeof(ProcessSlot));
  slot = memory == MAP_FAILED ? nullptr : new (memory) ProcessSlot();
  owner = getpid();
  return slot;
}

using Frames = std::vector<std::pair<std::uint32_t, std::uint64_t>>;

Frames frames_of(const CrashRecord& record) {
  Frames frames;
  for (std::uint32_t i = 0; i < record.frame_count; ++i)
    frames.emplace_back(record.frames[i].object, record.frames[i].offset);
  return frames;
}

/// Names are looked for in a child process, whose end is waited for no longer than that: nothing that debug information
/// does to it harms the worker.
void symbolize_in_helper(ProcessSlot& slot) {
  const pid_t helper = start_helper(
      {{&slot, {}, {}}}, {}, [] {}, [] {});
  if (helper == 0) return;
  try {
    const FileDescriptor pidfd = open_pidfd(helper);
    if (!wait_for_exit(pidfd.get(), kHelperTime)) kill(helper, SIGKILL);
  } catch (const SystemError&) {
    kill(helper, SIGKILL);  // Without a descriptor its end could not be bounded.
  }
  while (waitpid(helper, nullptr, __WALL) < 0 && errno == EINTR) continue;
}

std::string stack_of(ProcessSlot& slot) {
  // The same place fails again and again: its names are looked up once.
  static std::map<Frames, std::string> known;
  constexpr std::size_t kMostKnown = 64;
  Frames frames = frames_of(slot.crash);
  if (const auto found = known.find(frames); found != known.end()) return found->second;
  slot.crash.phase.store(2, std::memory_order_relaxed);
  slot.crash.stack_phase.store(0, std::memory_order_relaxed);
  slot.crash.stack[0] = '\0';
  symbolize_in_helper(slot);
  const bool has_names = slot.crash.stack_phase.load(std::memory_order_acquire) == 2;
  std::string stack = has_names ? std::string(slot.crash.stack) : stack_without_names(slot.crash);
  if (known.size() < kMostKnown) known.emplace(std::move(frames), stack);
  return stack;
}

}  // namespace

TaskReport report_current_exception() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  ProcessSlot* const slot = scratch();
  if (slot == nullptr)
    return {.type = "unknown", .message = "the task threw an exception, and memory to describe it could not be mapped"};
  CrashRecord& record = slot->crash;
  record.frame_count = record.object_count = 0;
  record.stack_phase.store(0, std::memory_order_relaxed);
  record.stack[0] = '\0';
  describe_exception(std::current_exception(), record);
  const bool needs_names = record.frame_count != 0 && record.stack_phase.load(std::memory_order_relaxed) == 0;
  return {record.type, record.message, needs_names ? stack_of(*slot) : std::string(record.stack),
          record.consequence != 0, record.time_ns};
}

}  // namespace retinue::detail
