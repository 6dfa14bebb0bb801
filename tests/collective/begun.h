#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "retinue/collective/communicator.h"

namespace retinue::test {

inline void wait_by_asking(const Request& request) {
  while (!request.done()) std::this_thread::yield();
}

inline CollectiveCall sum_of(std::vector<std::int64_t>& data) {
  return CollectiveCall::all_reduce(data.data(), data.size(), Dtype::kInt64, ReduceOp::kSum);
}

}  // namespace retinue::test
