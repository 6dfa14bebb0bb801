// One target as libFuzzer wants it.
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  retinue::fuzz::RETINUE_FUZZ_TARGET(std::as_bytes(std::span(data, bytes)));
  return 0;
}
