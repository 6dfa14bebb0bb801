#pragma once

#include <cereal/types/string.hpp>
#include <exception>
#include <source_location>
#include <string>

#include "retinue/torch/process_group.h"

namespace retinue {

/// One rank's error, in a form that all ranks can throw.
struct Failure {
  std::string text;                        ///< Empty: no error.
  int errno_value = 0;                     ///< 0: a UsageError.
  std::exception_ptr exception = nullptr;  ///< On the rank that has it.

  explicit operator bool() const { return !text.empty(); }
  template <class Archive>
  void serialize(Archive& archive) {
    archive(text, errno_value);
  }
};

/// Of the exception that is being handled.
Failure current_failure();

/// Throws it as the error of `rank` in what `doing` says: "Checkpoint: cannot save step 3". `size`: the number of
/// ranks.
[[noreturn]] void throw_failure(const std::string& doing, const Failure& failure, int rank, int size);

/// Calls `body` and returns its error.
template <class Body>
Failure failure_of(Body body) {
  try {
    body();
  } catch (...) {
    return current_failure();
  }
  return {};
}

/// Throws the first rank's error on all ranks. Blocking: a collective.
void throw_if_any_failed(const std::string& doing, const Failure& mine, const ProcessGroup& group,
                         const std::source_location& where);

}  // namespace retinue
