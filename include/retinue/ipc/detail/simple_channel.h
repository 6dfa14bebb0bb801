#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "retinue/ipc/job_memory.h"
#include "retinue/ipc/shared_block.h"

namespace retinue::detail {

/// The untyped part of a SimpleQueue: bytes in, bytes out, and the hold on its memory. Not used directly.
///
/// Errors: SharedMemoryExhausted from put; TimeoutError when another process is stopped in it; SystemError from take
/// when the job's guardian was killed.
class SimpleChannel {
 public:
  using Time = std::chrono::nanoseconds;

  /// Makes a new queue in the job's memory. `type` distinguishes types of messages. Errors: SharedMemoryExhausted.
  static std::shared_ptr<SimpleChannel> create(const std::shared_ptr<JobMemory>& memory, std::uint64_t type);
  /// Opens the queue in a block. Errors: UsageError if there is none, or one of another type.
  static std::shared_ptr<SimpleChannel> open(const SharedBlock& block, std::uint64_t type);
  ~SimpleChannel();
  SimpleChannel(const SimpleChannel&) = delete;
  SimpleChannel& operator=(const SimpleChannel&) = delete;

  const SharedBlock& block() const noexcept;

  /// Informs waiting consumers that a message will be there in some 100 us.
  void announce();
  /// Puts a message and the blocks that it refers to.
  void put(std::span<const std::byte> message, const std::vector<SharedBlock>& references);
  /// Passes the next message to `reader`, in this process's own memory or in a block that it holds meanwhile. A timeout
  /// of zero only tries; nanoseconds::max() waits without a time limit. Returns false if not in time.
  bool take(Time timeout, const std::function<void(std::span<const std::byte>)>& reader);
  bool is_empty() const;

 private:
  class Impl;
  explicit SimpleChannel(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue::detail
