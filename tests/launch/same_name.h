#pragma once

#include <cstdint>

#include "retinue/launch/options.h"

namespace retinue::test {

/// Each spawns its file's own `static void train`, which writes the file's letter.
void spawn_same_name_a(StartMethod method, std::uint64_t offset);
void spawn_same_name_b(StartMethod method, std::uint64_t offset);

}  // namespace retinue::test
