#pragma once

namespace retinue {

/// Whether this process runs on one of valgrind's tools, which is a processor of its own and knows fewer system calls
/// than the kernel. Cost: some nanoseconds.
bool runs_on_valgrind() noexcept;

}  // namespace retinue
