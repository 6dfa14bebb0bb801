#pragma once

/// A memory barrier for others: who calls heavy_barrier() pays, so that they need none themselves. Threads of processes
/// that asked for it have, each at some moment during the call, made all earlier stores visible and see all stores that
/// the caller made before.
namespace retinue {

/// Makes this process one of those that heavy_barrier() reaches. False: the kernel refuses, and it never will.
bool accept_heavy_barriers() noexcept;

/// Cost: a microsecond or a few, for an interrupt on each CPU that runs such a process.
void heavy_barrier() noexcept;

}  // namespace retinue
