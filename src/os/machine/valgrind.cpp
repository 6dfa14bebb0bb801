#include "os/machine/valgrind.h"

#include <cstdint>

namespace retinue {

/// Valgrind answers a request, whose words a register points to, where it meets rotations that together do nothing and
/// then an instruction that does nothing. Its header, which a build need not have, has the same ones.
bool runs_on_valgrind() noexcept {
  constexpr std::uint64_t kRunningOnValgrind = 0x1001;
  const volatile std::uint64_t words[6] = {kRunningOnValgrind, 0, 0, 0, 0, 0};
#if defined(__x86_64__)
  std::uint64_t answer = 0;
  asm volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx"
               : "+d"(answer)
               : "a"(words)
               : "cc", "memory");
#elif defined(__aarch64__)
  register std::uint64_t answer asm("x3") = 0;
  register const volatile std::uint64_t* asked asm("x4") = words;
  asm volatile("ror x12, x12, #3\n\tror x12, x12, #13\n\tror x12, x12, #51\n\tror x12, x12, #61\n\torr x10, x10, x10"
               : "+r"(answer)
               : "r"(asked)
               : "cc", "memory");
#endif
  return answer != 0;
}

}  // namespace retinue
