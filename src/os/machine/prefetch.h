#pragma once

namespace retinue {

/// Asks for the cache line of `address`, as its only holder: a line that is asked for to be read has to be asked for
/// again when it is written. Not a fault, whatever the address.
inline void prefetch_to_write(const void* address) {
#ifdef __x86_64__
  // The compiler has the instruction only where the target is known to; others take it for a no-operation.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(address)));
#else
  __builtin_prefetch(address, 1);
#endif
}

}  // namespace retinue
