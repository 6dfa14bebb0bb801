#pragma once

#include <unistd.h>

#include <atomic>

namespace retinue {

/// A mutex of one process's threads that a fork may copy while another thread holds it: in the child, where that thread
/// is not, it is free. What it guards may be half changed there: a child must not rely on what its parent kept in it.
/// Not recursive; std::lock_guard takes it.
class ForkSafeMutex {
 public:
  void lock() noexcept {
    const pid_t own = getpid();
    pid_t holder = 0;
    while (!holder_.compare_exchange_strong(holder, own, std::memory_order_acquire)) {
      if (holder == own) {
        holder_.wait(own, std::memory_order_relaxed);
        holder = 0;
      }  // Else it is the parent's, as the fork found it: the next exchange takes it from there.
    }
  }
  void unlock() noexcept {
    holder_.store(0, std::memory_order_release);
    holder_.notify_one();
  }

 private:
  std::atomic<pid_t> holder_{0};
};

}  // namespace retinue
