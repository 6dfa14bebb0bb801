#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "retinue/base/deadline.h"

/// Futexes on words that several processes share.
namespace retinue {

/// A word and the value at which to sleep on it.
struct FutexWait {
  const std::atomic<std::uint32_t>* word;
  std::uint32_t expected;
};

constexpr std::size_t kMaxFutexWaits = 128;  ///< The kernel's limit for futex_wait_any.

/// Sleeps while `word` holds `expected`, until woken, at most `timeout`. Spurious wake-ups are normal: check and wait
/// again.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected, std::chrono::nanoseconds timeout);

/// Sleeps while each word holds its expected value, until one is woken, at most `timeout`.
/// Where the kernel lacks FUTEX_WAITV (before 5.16) it sleeps on the first word only, for at most 2 ms.
void futex_wait_any(std::span<const FutexWait> waits, std::chrono::nanoseconds timeout);

void futex_wake(const std::atomic<std::uint32_t>& word, int count);
inline void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  futex_wake(word, 0x7fffffff);
}

}  // namespace retinue
