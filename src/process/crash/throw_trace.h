#pragma once

#include <cstdint>
#include <exception>

#include "process/crash/stack_capture.h"

/// Where exceptions were thrown. The library defines `__cxa_throw` itself and forwards to the C++ runtime's, so that a
/// throw from any object of the process passes here, LibTorch's too. A program that links libstdc++ statically cannot
/// use it: the linker reports `__cxa_throw` twice.
namespace retinue {

/// Remembers the stack of every throw from here on. Cost: a walk of the stack for each throw; before this call, one
/// load.
void enable_throw_trace();

/// Where and when an exception was thrown.
struct ThrowTrace {
  RawStack stack;
  std::uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC.
};

/// The throw of `exception`, on whatever thread it was; rethrowing does not change it. False when it is not known:
/// thrown before enable_throw_trace(), made by std::make_exception_ptr, or displaced by many other living exceptions.
bool find_throw_trace(const std::exception_ptr& exception, ThrowTrace& trace);

}  // namespace retinue
