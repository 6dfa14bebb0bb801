#pragma once

#include <cstdint>
#include <vector>

#include "os/files/file_descriptor.h"
#include "retinue/base/deadline.h"

namespace retinue {

/// Waits for any of many descriptors (epoll), each known by a number of its own, and for wake().
///
/// Threads: wake() from any thread; all else from one.
class EventPoll {
 public:
  enum class Interest : std::uint8_t { kNothing, kRead, kWrite };  ///< A broken connection is always told.
  static constexpr std::uint64_t kWake = ~std::uint64_t{0};        ///< No descriptor's number.

  /// Errors: SystemError.
  EventPoll();

  /// Errors: SystemError.
  void add(int fd, std::uint64_t number, Interest interest);
  void change(int fd, std::uint64_t number, Interest interest);
  void remove(int fd) noexcept;

  /// Numbers of those that something can be done with; empty when the deadline passed, or wake() was called.
  const std::vector<std::uint64_t>& wait(Deadline deadline);
  void wake() const noexcept;

 private:
  FileDescriptor poll_;
  FileDescriptor bell_;
  std::vector<std::uint64_t> ready_;
};

}  // namespace retinue
