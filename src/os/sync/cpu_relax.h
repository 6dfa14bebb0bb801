#pragma once

namespace retinue {

/// One step of a spinning wait: 10 to 50 ns in which the core's other thread has more of it.
inline void cpu_relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // "yield" does nothing on most cores.
#else
#error "name the instruction that a spinning wait executes on this machine"
#endif
}

}  // namespace retinue
