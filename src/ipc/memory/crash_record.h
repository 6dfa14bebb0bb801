#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace retinue {

/// How a rank failed, as far as the rank itself could tell.
enum class CrashKind : std::uint32_t {
  kNone = 0,
  kException = 1,     ///< An exception left the rank's function.
  kSignal = 2,        ///< SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT.
  kTerminate = 3,     ///< std::terminate, with or without an exception.
  kErrorFile = 4,     ///< What the rank's program wrote into its error file; read by the helper.
  kBadErrorFile = 5,  ///< The same, but it cannot be read; the message says why.
};

/// A failing rank's last words, written into job memory without allocation, so that a signal handler can do it.
///
/// Addresses travel as {object, offset in it}: the helper turns them into names, files and lines in another process.
struct CrashRecord {
  static constexpr std::size_t kMaxFrames = 96;
  static constexpr std::size_t kMaxObjects = 24;

  struct Frame {
    std::uint64_t offset;  ///< From the object's load address (ELF virtual address for the symboliser).
    std::uint32_t object;  ///< Index into `objects`, kNoObject if the address belongs to none.
  };
  struct Object {
    char path[512];
  };
  static constexpr std::uint32_t kNoObject = 0xffffffffu;

  /// 0: empty; 1: being written (first crash wins); 2: complete. Reader acquires, pairs with the writer's release.
  std::atomic<std::uint32_t> phase;
  std::atomic<std::int32_t> writer;  ///< Thread that claimed it.
  CrashKind kind;
  std::int32_t signal;          ///< With kSignal; SIGABRT with kTerminate.
  std::uint64_t fault_address;  ///< si_addr of SIGSEGV, SIGBUS, SIGFPE, SIGILL.
  std::uint64_t time_ns;        ///< CLOCK_MONOTONIC.
  std::uint32_t consequence;    ///< 1 when the exception only says that another rank failed (PeerLost).
  char type[256];               ///< Demangled type of the exception.
  char message[8192];           ///< what(), nested exceptions one per line.
  std::uint32_t frame_count;
  std::uint32_t object_count;
  Frame frames[kMaxFrames];  ///< Innermost first.
  Object objects[kMaxObjects];

  /// Written by the helper: 0: none; 1: at work; 2: complete; by the guardian: 3: a helper died of it.
  std::atomic<std::uint32_t> stack_phase;
  /// Of the program's own record: 1 when the guardian has seen to it. Futex.
  std::atomic<std::uint32_t> reported;
  char stack[24576];  ///< Text, one frame per line.
};

}  // namespace retinue
