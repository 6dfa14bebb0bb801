#pragma once

#include <ATen/ops/full.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "retinue/torch/process_group.h"

namespace retinue::test {

/// A group of ranks that share memory, and do not use it.
inline ProcessGroup by_gloo(const JobGroup& members, const std::string& name = "") {
  return init_process_group(members, {.backend = "gloo", .timeout = std::chrono::seconds(60), .group_name = name});
}

inline at::Tensor number(int value, std::int64_t count = 3) {
  return at::full({count}, value, at::kInt);
}

}  // namespace retinue::test
