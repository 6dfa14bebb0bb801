#pragma once

/// Threads of ranks get a signal stack, so that their stack overflows can be recorded. The library defines
/// `pthread_create` itself and forwards to the next one, so that it sees the threads of all libraries; a program that
/// brings its own definition keeps it, and its threads are as they were.
namespace retinue {

/// From here on each new thread gets one. Cost: 128 KiB of address space a thread, a few microseconds; before this call
/// one load.
void guard_new_threads();

}  // namespace retinue
