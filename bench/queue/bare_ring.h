#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace retinue::bench {

/// A slot as a Queue of words has it.
struct alignas(16) BareSlot {
  std::atomic<std::uint64_t> state;  ///< Twice the lap; one more: full.
  std::atomic<std::uint64_t> word;
};

/// One side of a ring for one producer and one consumer, in shared memory that began as zeros. It spins without end.
class BareRingSide {
 public:
  BareRingSide(std::byte* slots, std::size_t capacity)
      : slots_(reinterpret_cast<BareSlot*>(slots)), capacity_(capacity) {}

  void put(std::uint64_t word) {
    BareSlot& slot = slots_[index_];
    while (slot.state.load(std::memory_order_acquire) != lap_) rest();
    slot.word.store(word, std::memory_order_relaxed);
    slot.state.store(lap_ + 1, std::memory_order_release);
    step();
  }
  std::uint64_t get() {
    BareSlot& slot = slots_[index_];
    while (slot.state.load(std::memory_order_acquire) != lap_ + 1) rest();
    const std::uint64_t word = slot.word.load(std::memory_order_relaxed);
    slot.state.store(lap_ + 2, std::memory_order_release);
    step();
    return word;
  }

 private:
  static void rest() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  void step() {
    if (++index_ < capacity_) return;
    index_ = 0;
    lap_ += 2;
  }

  BareSlot* slots_;
  std::size_t capacity_;
  std::size_t index_ = 0;
  std::uint64_t lap_ = 0;
};

}  // namespace retinue::bench
