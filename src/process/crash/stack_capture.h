#pragma once

#include <ucontext.h>

#include <cstddef>
#include <cstdint>

#include "ipc/memory/crash_record.h"

namespace retinue {

/// A call stack as program counters, innermost first. Return addresses are moved back into their call, so that looking
/// them up finds the line of the call and not the one after it.
///
/// A stack deeper than the arrays keeps both ends: where it broke and who began it.
struct RawStack {
  static constexpr std::size_t kInner = 64;
  static constexpr std::size_t kOuter = CrashRecord::kMaxFrames - kInner - 1;  // One frame of the record tells the gap.

  std::size_t inner_count = 0;
  std::size_t outer_count = 0;
  std::uint64_t skipped = 0;  ///< Frames between the inner and the outer ones.
  std::uintptr_t inner[kInner];
  std::uintptr_t outer[kOuter];
};

/// Frame::object of the frame that stands for a gap; Frame::offset is the number of frames left out.
constexpr std::uint32_t kSkippedFrames = CrashRecord::kNoObject - 1;

struct CaptureOptions {
  /// The frame to begin with, as its raw return address or program counter; 0: the caller of capture_stack().
  std::uintptr_t first_pc = 0;
  /// Frames to walk at most.
  std::size_t max_steps = 512;
};

/// Loads what the functions below need (the unwinder, the program's path), so that they are async-signal-safe from here
/// on. Call it once at the start of a rank, before any thread can crash.
void prepare_stack_capture();

/// Walks the calling thread's stack. Async-signal-safe after prepare_stack_capture().
void capture_stack(RawStack& stack, const CaptureOptions& options);

/// In a signal handler: the stack of the interrupted code, frame 0 being its program counter. A jump to an address that
/// holds no code (a call through a null pointer) is followed to its caller; `context` is unchanged afterwards.
void capture_interrupted_stack(RawStack& stack, ucontext_t& context);

/// Where the interrupted code's stack pointer stood.
std::uintptr_t stack_pointer_of(const ucontext_t& context);

/// Turns addresses into {object, offset}. Async-signal-safe after prepare_stack_capture().
void write_frames(const RawStack& stack, CrashRecord& record);

}  // namespace retinue
