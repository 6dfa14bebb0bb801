#include "os/sync/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "os/machine/valgrind.h"
#include "os/sync/clock.h"

namespace retinue {
namespace {

/// Whether the kernel can wait for several. Not below valgrind, which says with each call that it knows none.
std::atomic<bool>& can_wait_for_several() {
  static std::atomic<bool> can{!runs_on_valgrind()};
  return can;
}

// Made when the program starts. If a process forks while another thread makes a function's static, the child waits for
// ever where it needs that too.
[[maybe_unused]] const std::atomic<bool>& made_at_start = can_wait_for_several();

bool try_to_wait_for_several(std::span<const FutexWait> waits, std::chrono::nanoseconds timeout) {
  std::array<futex_waitv, kMaxFutexWaits> kernel_waits{};
  const std::size_t count = std::min(waits.size(), kMaxFutexWaits);
  for (std::size_t i = 0; i < count; ++i) {
    kernel_waits[i].val = waits[i].expected;
    kernel_waits[i].uaddr = reinterpret_cast<std::uintptr_t>(waits[i].word);
    kernel_waits[i].flags = FUTEX_32;
  }
  const timespec absolute = monotonic_after(timeout);
  const long result = syscall(SYS_futex_waitv, kernel_waits.data(), count, 0, &absolute, CLOCK_MONOTONIC);
  return result >= 0 || (errno != ENOSYS && errno != EPERM);
}

}  // namespace

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds timeout) {
  const timespec relative = to_timespec(timeout);
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, &relative, nullptr, 0);
}

void futex_wait_any(std::span<const FutexWait> waits, std::chrono::nanoseconds timeout) {
  if (waits.empty()) return;
  if (can_wait_for_several().load(std::memory_order_relaxed)) {
    if (try_to_wait_for_several(waits, timeout)) return;
    can_wait_for_several().store(false, std::memory_order_relaxed);
  }
  futex_wait(*waits[0].word, waits[0].expected,
             std::min<std::chrono::nanoseconds>(timeout, std::chrono::milliseconds(2)));
}

void futex_wake(const std::atomic<std::uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE, count, nullptr, nullptr, 0);
}

}  // namespace retinue
