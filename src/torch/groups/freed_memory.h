#pragma once

namespace retinue {

/// Lets malloc keep freed blocks of up to 32 MiB for the next step, which asks for the same sizes. By default it gives
/// them back to the kernel, and every page costs a fault when it is used again: a fourth of a step of a small model.
///
/// Does nothing if the environment has RETINUE_KEEP_FREED_MEMORY=0, or sets malloc itself.
void keep_freed_memory();

}  // namespace retinue
