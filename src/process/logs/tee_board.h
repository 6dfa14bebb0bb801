#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "retinue/base/error.h"

namespace retinue {

/// What a log forwarder and the guardian know of each other, in memory that both have; it outlives the forwarder, so
/// that another one continues where it stopped. Made by the guardian before it forks the helper.
class TeeBoard {
 public:
  enum class Order : std::uint32_t {
    kGoOn = 0,
    kFinish = 1,  ///< The ranks have ended: show the rest and exit.
    kHurry = 2,   ///< So has the program: with less patience.
  };

  explicit TeeBoard(std::size_t streams) : bytes_(sizeof(Shared) + streams * sizeof(std::atomic<std::uint64_t>)) {
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw SystemError("mapping memory for a log forwarder", errno);
    shared_ = static_cast<Shared*>(memory);  // Zeros: a valid state of each field.
  }
  ~TeeBoard() { munmap(shared_, bytes_); }
  TeeBoard(const TeeBoard&) = delete;
  TeeBoard& operator=(const TeeBoard&) = delete;

  std::atomic<Order>& order() const { return shared_->order; }
  /// Bytes that the consoles took: tells a slow console from one that nobody reads.
  std::atomic<std::uint64_t>& written_bytes() const { return shared_->written_bytes; }
  /// Bytes of a stream's file that the console has; always up to the end of a line.
  std::atomic<std::uint64_t>& shown_bytes(std::size_t stream) const {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(shared_ + 1)[stream];
  }

 private:
  struct Shared {
    std::atomic<std::uint64_t> written_bytes;
    std::atomic<Order> order;
  };

  std::size_t bytes_;
  Shared* shared_;
};

}  // namespace retinue
