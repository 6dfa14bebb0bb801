#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <source_location>
#include <span>
#include <string>

#include "retinue/base/error.h"
#include "retinue/collective/types.h"
#include "retinue/ipc/job_group.h"

namespace retinue {

class PendingCollective;

struct CommunicatorOptions {
  /// Longest wait of any call for the other members. Default: PyTorch's.
  std::chrono::nanoseconds timeout = std::chrono::minutes(30);
};

/// Where a call was made, as errors on other ranks print it. Made from std::source_location by default arguments.
struct CallSite {
  CallSite(std::source_location where = std::source_location::current())  // NOLINT(google-explicit-constructor)
      : file(where.file_name()), line(where.line()) {}
  CallSite(const char* file_name, unsigned line_number) : file(file_name), line(line_number) {}

  const char* file;
  unsigned line;
};

/// Lets the ranks of one host step together through job memory.
///
/// All members make the same calls in the same order. A member that calls something else gets CollectiveMismatch, and
/// so do all others; a member that died or finished ends every wait with PeerLost.
///
/// Blocking: every call returns when the result is in the caller's buffer and the buffer may be changed.
/// Threads: one call at a time; calls from several threads are serialised by the caller.
/// Errors: PeerLost, CollectiveMismatch, TimeoutError, UsageError.
/// After an error: all but UsageError poison the group; later calls throw the same.
class Communicator {
 public:
  /// Blocking: waits for all members, at most `options.timeout`.
  explicit Communicator(JobGroup group, CommunicatorOptions options = {});
  ~Communicator();
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;

  int rank() const noexcept;
  int size() const noexcept;
  const JobGroup& group() const noexcept;
  void set_timeout(std::chrono::nanoseconds timeout);

  void barrier(CallSite site = {});

  /// Reduces `count` elements at `data` over all ranks, in place, with the bits of the serial loop over ranks.
  /// Cost: buffers in job memory: each rank reads its slice from all and writes it to all, twice the buffer's bytes per
  /// rank. Private buffers: two copies more, through chunks that stay in the cache.
  void all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, CallSite site = {});

  /// Copies `bytes` bytes at `data` from `root` to all other ranks.
  void broadcast(void* data, std::size_t bytes, int root, CallSite site = {});

  /// Shape: `output` holds size() times `bytes` bytes; rank r's input lands at r times `bytes`. `input` may be its own
  /// place in `output`.
  void all_gather(const void* input, void* output, std::size_t bytes, CallSite site = {});

  template <typename T>
  void all_reduce(std::span<T> data, ReduceOp op = ReduceOp::kSum, CallSite site = {}) {
    all_reduce(data.data(), data.size(), DtypeOf<T>::value, op, site);
  }
  template <typename T>
  void broadcast(std::span<T> data, int root, CallSite site = {}) {
    broadcast(data.data(), data.size_bytes(), root, site);
  }
  template <typename T>
  void all_gather(std::span<const T> input, std::span<T> output, CallSite site = {}) {
    if (output.size() != input.size() * static_cast<std::size_t>(size()))
      throw UsageError("all_gather: output must hold size() times the input's elements");
    all_gather(input.data(), output.data(), input.size_bytes(), site);
  }

  /// The same without waiting: see PendingCollective in retinue/collective/pending.h.
  PendingCollective start_barrier(CallSite site = {});
  PendingCollective start_all_reduce(void* data, std::size_t count, Dtype dtype, ReduceOp op, CallSite site = {});
  PendingCollective start_broadcast(void* data, std::size_t bytes, int root, CallSite site = {});
  PendingCollective start_all_gather(const void* input, void* output, std::size_t bytes, CallSite site = {});

 private:
  friend class PendingCollective;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace retinue
