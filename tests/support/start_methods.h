#pragma once

#include <gtest/gtest.h>

#include <string>

#include "retinue/launch/options.h"

namespace retinue::test {

/// A suite whose body runs once for each start method.
class EachStartMethod : public testing::TestWithParam<StartMethod> {};

inline auto all_start_methods() {
  return testing::Values(StartMethod::kForkserver, StartMethod::kSpawn, StartMethod::kFork);
}

inline std::string start_method_name(const testing::TestParamInfo<StartMethod>& info) {
  switch (info.param) {
    case StartMethod::kForkserver:
      return "forkserver";
    case StartMethod::kSpawn:
      return "spawn";
    case StartMethod::kFork:
      return "fork";
  }
  return "unknown";
}

}  // namespace retinue::test
