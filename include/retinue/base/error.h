#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "retinue/base/detail/library_settings.h"

/// The errors that Retinue throws: one type for each case that a caller would handle differently. A message says what
/// happened, where, and what to do.
namespace retinue {

/// The base class of all of Retinue's errors.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The call is wrong: an argument out of range, a missing `Runtime`, an operation in a state that forbids it.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Ranks that should share memory can't: they are on several hosts or, on one host, separated by something such as
/// containers. All of them get this error; they can form a group over several hosts, or groups by host.
class NotOneHost : public UsageError {
 public:
  NotOneHost(const std::string& message, std::string reason) : UsageError(message), reason_(std::move(reason)) {}

  /// Returns the reason, without advice: "ranks 0 and 2 are on different hosts".
  const std::string& reason() const noexcept { return reason_; }

 private:
  std::string reason_;
};

/// The operating system refused a call; the error has the call's name and errno.
class SystemError : public Error {
 public:
  /// Makes the error. `what` says what Retinue was doing; the name of `errno_value` is appended.
  SystemError(const std::string& what, int errno_value);

  int errno_value() const noexcept { return errno_value_; }

 private:
  int errno_value_;
};

/// A deadline passed. The object that was waited for is unchanged, unless its documentation says otherwise.
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// The other side, or this object itself, was closed.
class Closed : public Error {
 public:
  using Error::Error;
};

/// A barrier broke. Its waiters get this error, and so do later callers until its reset().
class BrokenBarrierError : public Error {
 public:
  using Error::Error;
};

/// Job memory is full, or the machine has no memory for its pages.
class SharedMemoryExhausted : public Error {
 public:
  using Error::Error;
};

/// A member died, left, or threw in a reduction while others needed it. The group is then poisoned: make a new one.
class PeerLost : public Error {
 public:
  PeerLost(const std::string& message, std::vector<int> ranks) : Error(message), ranks_(std::move(ranks)) {}

  /// Returns the group ranks that are gone.
  const std::vector<int>& ranks() const noexcept { return ranks_; }

 private:
  std::vector<int> ranks_;
};

/// The members of a group met in different calls. The group is then poisoned: make a new one.
class CollectiveMismatch : public Error {
 public:
  using Error::Error;
};

/// The members of a group hold different data (retinue/collective/divergence.h). The group is still usable.
class DataDivergence : public CollectiveMismatch {
 public:
  using CollectiveMismatch::CollectiveMismatch;
};

}  // namespace retinue
